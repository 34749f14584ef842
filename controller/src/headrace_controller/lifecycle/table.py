"""The transition table: the one place that says what every event does in every state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace_controller.lifecycle import effects as do
from headrace_controller.lifecycle.effects import Effect, Guard
from headrace_controller.lifecycle.states import CellState, EventKind

LOADING, READY, DRAINING, FAILED, TERMINATED = CellState
_E = EventKind


@dataclass(frozen=True, slots=True)
class Branch:
    """One outcome: where to (None = the state stays), under which condition (None = always),
    and what else happens."""

    to: CellState | None
    when: Guard | None
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """The outcomes of an event in a state; the first whose condition holds is taken. When none
    holds, the event is illegal there."""

    branches: tuple[Branch, ...]


def stay(*effects: Effect, when: Guard | None = None) -> Rule:
    """The state stays."""
    return Rule((Branch(None, when, effects),))


def to(state: CellState, *effects: Effect, when: Guard | None = None) -> Rule:
    """The state changes."""
    return Rule((Branch(state, when, effects),))


def first(*rules: Rule) -> Rule:
    """The first of several whose condition holds."""
    return Rule(tuple(branch for rule in rules for branch in rule.branches))


TRANSITIONS: Final[dict[tuple[CellState, EventKind], Rule]] = {
    # LOADING: known, not proven to serve.
    (LOADING, _E.REGISTERED): stay(),
    (LOADING, _E.ADOPTED): first(stay(when=do.in_hold_down), to(READY, do.no_ramp)),
    (LOADING, _E.ENGINE_LOADING): stay(),
    (LOADING, _E.ENGINE_SERVING): first(stay(when=do.in_hold_down), to(READY, do.ramp)),
    (LOADING, _E.ENGINE_DOWN): to(FAILED),
    (LOADING, _E.ENGINE_HUNG): to(FAILED),
    (LOADING, _E.ENGINE_SLEEPING): to(TERMINATED, do.sleep),
    (LOADING, _E.SILENCE_DEAD): to(FAILED),
    (LOADING, _E.SILENCE_ALIVE): stay(do.lose_telemetry),
    (LOADING, _E.SILENCE_WITHHELD): stay(do.lose_telemetry),
    (LOADING, _E.HEARD): stay(do.hear),
    (LOADING, _E.HARDWARE_FATAL): first(stay(when=do.is_history), to(FAILED, do.wait_for_restart)),
    (LOADING, _E.DRAIN_ASKED): to(TERMINATED, do.start_drain),
    (LOADING, _E.DRAIN_FINISHED): stay(),
    (LOADING, _E.GOODBYE_PLANNED): stay(do.hold),
    (LOADING, _E.WITHDRAWN): to(TERMINATED),
    # READY: serves and carries weight.
    (READY, _E.REGISTERED): stay(),
    (READY, _E.ENGINE_LOADING): first(stay(when=do.in_grace), to(LOADING)),
    (READY, _E.ENGINE_SERVING): stay(do.end_hold),
    (READY, _E.ENGINE_DOWN): to(FAILED),
    (READY, _E.ENGINE_HUNG): to(FAILED),
    (READY, _E.HUNG_WITHHELD): stay(do.doubt),
    (READY, _E.ENGINE_SLEEPING): to(DRAINING, do.sleep),
    (READY, _E.SILENCE_DEAD): to(FAILED),
    (READY, _E.SILENCE_ALIVE): stay(do.lose_telemetry),
    (READY, _E.SILENCE_WITHHELD): stay(do.lose_telemetry),
    (READY, _E.HEARD): stay(do.hear),
    (READY, _E.HARDWARE_FATAL): first(stay(when=do.is_history), to(FAILED, do.wait_for_restart)),
    (READY, _E.DRAIN_ASKED): to(DRAINING, do.start_drain),
    (READY, _E.DRAIN_FINISHED): stay(),
    (READY, _E.GOODBYE_PLANNED): stay(do.hold),
    (READY, _E.WITHDRAWN): to(TERMINATED),
    # DRAINING: takes no new requests, finishes those in flight. Entered from READY only.
    (DRAINING, _E.REGISTERED): stay(),
    (DRAINING, _E.ENGINE_LOADING): to(TERMINATED),
    (DRAINING, _E.ENGINE_SERVING): first(to(READY, do.ramp, when=do.is_asleep), stay()),
    (DRAINING, _E.ENGINE_DOWN): to(TERMINATED),
    (DRAINING, _E.ENGINE_HUNG): to(TERMINATED),
    (DRAINING, _E.ENGINE_SLEEPING): stay(),
    (DRAINING, _E.SILENCE_DEAD): to(TERMINATED),
    (DRAINING, _E.SILENCE_ALIVE): stay(do.lose_telemetry),
    (DRAINING, _E.SILENCE_WITHHELD): stay(do.lose_telemetry),
    (DRAINING, _E.HEARD): stay(do.hear),
    (DRAINING, _E.HARDWARE_FATAL): first(stay(when=do.is_history), to(TERMINATED)),
    (DRAINING, _E.DRAIN_ASKED): stay(do.start_drain),
    (DRAINING, _E.DRAIN_CANCELLED): first(stay(do.sleep, when=do.sleeps_now), to(READY, do.no_ramp)),
    (DRAINING, _E.DRAIN_FINISHED): to(TERMINATED),
    (DRAINING, _E.DRAIN_DEADLINE): to(TERMINATED),
    (DRAINING, _E.GOODBYE_PLANNED): stay(do.hold),
    (DRAINING, _E.WITHDRAWN): to(TERMINATED),
    # FAILED: down, dead, or on broken hardware; may come back.
    (FAILED, _E.REGISTERED): stay(),
    (FAILED, _E.ENGINE_LOADING): to(LOADING),
    (FAILED, _E.ENGINE_SERVING): first(
        stay(when=do.not_restarted), stay(when=do.in_hold_down), to(READY, do.ramp)
    ),
    (FAILED, _E.ENGINE_DOWN): stay(do.restarted),
    (FAILED, _E.ENGINE_HUNG): stay(),
    (FAILED, _E.ENGINE_SLEEPING): first(stay(when=do.is_broken), to(TERMINATED, do.sleep)),
    (FAILED, _E.SILENCE_DEAD): stay(),
    (FAILED, _E.SILENCE_ALIVE): stay(),
    (FAILED, _E.SILENCE_WITHHELD): stay(),
    (FAILED, _E.HEARD): stay(),
    (FAILED, _E.HARDWARE_FATAL): first(stay(when=do.is_history), stay(do.wait_for_restart)),
    (FAILED, _E.DRAIN_ASKED): to(TERMINATED, do.start_drain),
    (FAILED, _E.DRAIN_FINISHED): stay(),
    (FAILED, _E.GOODBYE_PLANNED): stay(),
    (FAILED, _E.WITHDRAWN): to(TERMINATED),
    (FAILED, _E.RETENTION_OVER): stay(),
    # TERMINATED: out on purpose; back only when named again, undrained or woken.
    (TERMINATED, _E.REGISTERED): first(stay(when=do.drain_stands), to(LOADING)),
    (TERMINATED, _E.ENGINE_LOADING): first(to(LOADING, when=do.is_asleep), stay()),
    (TERMINATED, _E.ENGINE_SERVING): first(to(LOADING, when=do.is_asleep), stay()),
    (TERMINATED, _E.ENGINE_DOWN): stay(),
    (TERMINATED, _E.ENGINE_HUNG): stay(),
    (TERMINATED, _E.ENGINE_SLEEPING): stay(),
    (TERMINATED, _E.SILENCE_DEAD): stay(),
    (TERMINATED, _E.SILENCE_ALIVE): stay(),
    (TERMINATED, _E.SILENCE_WITHHELD): stay(),
    (TERMINATED, _E.HEARD): stay(),
    (TERMINATED, _E.HARDWARE_FATAL): stay(),
    (TERMINATED, _E.DRAIN_ASKED): stay(do.start_drain),
    (TERMINATED, _E.DRAIN_CANCELLED): to(LOADING, when=do.drain_stands),
    (TERMINATED, _E.DRAIN_FINISHED): stay(),
    (TERMINATED, _E.GOODBYE_PLANNED): stay(),
    (TERMINATED, _E.WITHDRAWN): stay(),
    (TERMINATED, _E.RETENTION_OVER): stay(),
}
