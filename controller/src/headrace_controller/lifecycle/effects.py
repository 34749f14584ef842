"""What a transition does to a life besides its state; guards that choose between branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headrace_controller.lifecycle.states import (
    BY_ENGINE,
    NEVER,
    CellLife,
    CellState,
    Drain,
    Event,
)
from headrace_controller.settings import LifecycleSettings

Guard = Callable[[CellLife, Event, float], bool]
Effect = Callable[[CellLife, Event, float, LifecycleSettings], CellLife]

_MAX_DOUBLINGS: Final = 32


def in_hold_down(life: CellLife, event: Event, now: float) -> bool:
    """hold-down not over"""
    return now < life.hold_down_until


def in_grace(life: CellLife, event: Event, now: float) -> bool:
    """a planned goodbye's grace runs"""
    return life.held and now < life.hold_until


def not_restarted(life: CellLife, event: Event, now: float) -> bool:
    """hardware failed after the engine began to serve"""
    return life.broken_at is not None and now - event.serving_s <= life.broken_at


def is_broken(life: CellLife, event: Event, now: float) -> bool:
    """hardware failed"""
    return life.broken_at is not None


def is_history(life: CellLife, event: Event, now: float) -> bool:
    """it happened before the engine began to serve"""
    return event.age_s > event.serving_s > 0


def drain_stands(life: CellLife, event: Event, now: float) -> bool:
    """a drain stands"""
    return life.drain is not None


def is_asleep(life: CellLife, event: Event, now: float) -> bool:
    """only its sleep took it out"""
    return life.asleep


def sleeps_now(life: CellLife, event: Event, now: float) -> bool:
    """the engine is asleep"""
    return life.asleep or event.requested_by == BY_ENGINE


def wait_for_restart(life: CellLife, event: Event, now: float, settings: LifecycleSettings) -> CellLife:
    """needs a restart"""
    happened = now - max(0.0, event.age_s)
    return replace(life, broken_at=max(happened, NEVER if life.broken_at is None else life.broken_at))


def restarted(life: CellLife, event: Event, now: float, settings: LifecycleSettings) -> CellLife:
    """restart seen"""
    return replace(life, broken_at=None)


def ramp(life: CellLife, event: Event, now: float, settings: LifecycleSettings) -> CellLife:
    """ramp from when it began to serve"""
    return replace(_spoken_for(life), ready_since=now - max(0.0, event.serving_s))


def no_ramp(life: CellLife, event: Event, now: float, settings: LifecycleSettings) -> CellLife:
    """no ramp"""
    return replace(_spoken_for(life), ready_since=now - max(settings.ramp_s, event.serving_s))


def lose_telemetry(life: CellLife, event: Event, now: float, settings: LifecycleSettings) -> CellLife:
    """weight held, telemetry lost"""
    return replace(life, telemetry_lost=True)


def hear(life: CellLife, event: Event, now: float, settings: LifecycleSettings) -> CellLife:
    """telemetry back"""
    held = life.held and now < life.hold_until
    return replace(life, telemetry_lost=False, held=held, hold_until=life.hold_until if held else NEVER)


def end_hold(life: CellLife, event: Event, now: float, settings: LifecycleSettings) -> CellLife:
    """hold ends"""
    return replace(life, telemetry_lost=False, held=False, hold_until=NEVER, doubted=False)


def doubt(life: CellLife, event: Event, now: float, settings: LifecycleSettings) -> CellLife:
    """weight held, too many hang at once"""
    return replace(life, doubted=True)


def hold(life: CellLife, event: Event, now: float, settings: LifecycleSettings) -> CellLife:
    """weight held for the grace"""
    return replace(life, held=True, hold_until=now + max(0.0, event.grace_s))


def start_drain(life: CellLife, event: Event, now: float, settings: LifecycleSettings) -> CellLife:
    """drain noted"""
    limit = settings.drain_deadline_s if event.deadline_s is None else max(0.0, event.deadline_s)
    return replace(life, drain=Drain(now + limit, event.requested_by, event.target, event.cause))


def sleep(life: CellLife, event: Event, now: float, settings: LifecycleSettings) -> CellLife:
    """drain by the engine"""
    return replace(life, drain=Drain(now + settings.drain_deadline_s, BY_ENGINE))


def enter(life: CellLife, to: CellState, now: float, settings: LifecycleSettings) -> CellLife:
    """The life in its new state, without what belonged only to the old one.

    A fall from READY to FAILED or LOADING starts a hold-down.
    """
    if life.state is CellState.READY and to in (CellState.FAILED, CellState.LOADING):
        life = _fall(life, now, settings)
    gone = to in (CellState.FAILED, CellState.TERMINATED)
    keeps_drain = to in (CellState.DRAINING, CellState.TERMINATED)
    return replace(
        life,
        state=to,
        since=now,
        ready_since=None,
        held=life.held and not gone,
        hold_until=NEVER if gone else life.hold_until,
        telemetry_lost=life.telemetry_lost and not gone,
        doubted=False,
        broken_at=life.broken_at if to is CellState.FAILED else None,
        drain=life.drain if keeps_drain else None,
    )


def _spoken_for(life: CellLife) -> CellLife:
    """READY on somebody's word: nothing is held."""
    return replace(life, held=False, hold_until=NEVER, telemetry_lost=False, drain=None)


def _fall(life: CellLife, now: float, settings: LifecycleSettings) -> CellLife:
    """One more fall from READY: the hold-down doubles, unless there was calm before."""
    flaps = 1 if now - life.since > settings.flap_memory_s else life.flaps + 1
    hold_down = settings.hold_down_s * 2.0 ** min(flaps - 1, _MAX_DOUBLINGS)
    return replace(life, flaps=flaps, hold_down_until=now + min(hold_down, settings.hold_down_max_s))
