"""Where what was heard and what the lifecycle holds disagree: from columns to events.

The search is vectorised; an event is built only for a row that needs one, so a quiet fleet of
thousands costs a few array comparisons a tick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from headrace_controller.inventory import Fleet
from headrace_controller.inventory.columns import Flags, Small
from headrace_controller.lifecycle.states import FATAL_XIDS, CellState, Event, EventKind
from headrace_controller.settings import LifecycleSettings
from headrace_pb.v1 import telemetry_pb2 as pb

DRAIN_SETTLE_S: Final = 1.0
"""An engine with nothing in flight counts as drained only this long after its endpoint was taken
out: requests already on their way and the engine's next figures need that time."""

_LOADING, _READY, _DRAINING, _FAILED, _TERMINATED = (int(state) for state in CellState)
_WORDS: Final = {
    pb.ENGINE_STATE_LOADING: EventKind.ENGINE_LOADING,
    pb.ENGINE_STATE_SERVING: EventKind.ENGINE_SERVING,
    pb.ENGINE_STATE_DOWN: EventKind.ENGINE_DOWN,
    pb.ENGINE_STATE_HUNG: EventKind.ENGINE_HUNG,
    pb.ENGINE_STATE_SLEEPING: EventKind.ENGINE_SLEEPING,
}


def find_events(
    fleet: Fleet, now: float, settings: LifecycleSettings, kept: frozenset[str] = frozenset()
) -> list[tuple[str, Event]]:
    """At most one event a cell, the gravest: (cell id, event). `kept` are the cells that were
    READY before this controller started; they are adopted."""
    if not _anything(fleet):
        return []
    events: dict[int, Event] = {}

    def add(mask: Flags, build: Callable[[int], Event]) -> None:
        for row in np.flatnonzero(mask).tolist():
            events.setdefault(row, build(row))

    n = fleet.size
    state = fleet.state[:n]
    fresh = now - fleet.last_heard[:n] <= settings.ttl_s
    add(_fatal_hardware(fleet, state), lambda row: _hardware_event(fleet, row, now))
    add(fresh & _word_differs(fleet, state, now), lambda row: _word_event(fleet, row, now, kept))
    add(fresh & _heard_again(fleet, state, now, settings.ttl_s), lambda row: Event(EventKind.HEARD))
    add(_drained(fleet, state), lambda row: Event(EventKind.DRAIN_FINISHED, "nothing in flight"))
    draining = state == _DRAINING
    add(draining & (fleet.drain_deadline[:n] <= now), lambda row: Event(EventKind.DRAIN_DEADLINE))
    add(_forgotten(fleet, state, now, settings), lambda row: Event(EventKind.RETENTION_OVER))
    fleet.new_xid[:n] = 0
    return [(fleet.facts_of(row).cell_id, event) for row, event in events.items()]


def _anything(fleet: Fleet) -> bool:
    """False where every cell is READY, serves, is spoken for and sound: then no event is due."""
    n = fleet.size
    state = fleet.state[:n]
    quiet = (state == _READY) & (fleet.engine_state[:n] == pb.ENGINE_STATE_SERVING)
    quiet &= ~(fleet.held[:n] | fleet.telemetry_lost[:n] | fleet.gpu_lost[:n] | fleet.doubted[:n])
    return not (quiet | (state == 0)).all() or bool(fleet.new_xid[:n].any())


def _fatal_hardware(fleet: Fleet, state: Small) -> Flags:
    n = fleet.size
    up = (state == _LOADING) | (state == _READY) | (state == _DRAINING)
    fatal = fleet.gpu_lost[:n]
    if fleet.new_xid[:n].any():
        fatal = fatal | np.isin(fleet.new_xid[:n], list(FATAL_XIDS))
    found: Flags = up & fatal
    return found


def _hardware_event(fleet: Fleet, row: int, now: float) -> Event:
    xid = int(fleet.new_xid[row])
    node = fleet.crews.fault_node(row)
    where = f" on node {node}" if node else ""
    if fleet.gpu_lost[row]:
        return Event(EventKind.HARDWARE_FATAL, f"GPU lost{where}")
    age = max(0.0, now - float(fleet.xid_at[row]))
    served = serving_s(fleet, row, now) or 0.0
    return Event(EventKind.HARDWARE_FATAL, f"XID {xid}{where}", serving_s=served, age_s=age)


def serving_s(fleet: Fleet, row: int, now: float) -> float | None:
    """How long a row's engine has been serving, 0 where it is not; None where that is not known."""
    state = fleet.engine_state[row]
    if state == pb.ENGINE_STATE_UNSPECIFIED:
        return None
    if state != pb.ENGINE_STATE_SERVING:
        return 0.0
    if fleet.telemetry_at[row] < fleet.engine_at[row]:
        return None
    return float(fleet.serving_ms[row]) / 1000 + now - float(fleet.engine_at[row])


def _word_differs(fleet: Fleet, state: Small, now: float) -> Flags:
    """Rows whose engine's state, said since the cell entered its own, asks for another."""
    n = fleet.size
    engine = fleet.engine_state[:n]
    said = fleet.engine_at[:n] >= fleet.state_since[:n]
    loading, serving = engine == pb.ENGINE_STATE_LOADING, engine == pb.ENGINE_STATE_SERVING
    dead = (engine == pb.ENGINE_STATE_DOWN) | (engine == pb.ENGINE_STATE_HUNG)
    sleeping = engine == pb.ENGINE_STATE_SLEEPING
    # An event tells that an engine serves, only a beat tells since when: wait for it.
    serving &= fleet.telemetry_at[:n] >= fleet.engine_at[:n]
    may_rise = serving & (now >= fleet.hold_down_until[:n]) & ~fleet.gpu_lost[:n]
    held, asleep = fleet.held[:n], fleet.asleep[:n]
    restart = fleet.needs_restart[:n]
    differs = (
        ((state == _LOADING) & (may_rise | dead | sleeping))
        | ((state == _READY) & (dead | sleeping | (loading & ~(held & (now < fleet.hold_until[:n])))))
        | ((state == _READY) & (held | fleet.doubted[:n]) & serving)
        | ((state == _DRAINING) & (dead | loading | (asleep & serving)))
        | ((state == _FAILED) & (may_rise | loading | (sleeping & ~restart)))
        | ((state == _FAILED) & restart & (engine == pb.ENGINE_STATE_DOWN))
        | ((state == _TERMINATED) & asleep & (loading | may_rise))
    )
    found: Flags = said & differs
    return found


def _word_event(fleet: Fleet, row: int, now: float, kept: frozenset[str]) -> Event:
    kind = _WORDS[fleet.engine_state[row]]
    served = serving_s(fleet, row, now) or 0.0
    if kind is not EventKind.ENGINE_SERVING:
        return Event(kind)
    if fleet.state[row] == _LOADING and fleet.facts_of(row).cell_id in kept:
        return Event(EventKind.ADOPTED, "was READY before this controller started", serving_s=served)
    return Event(kind, serving_s=served)


def _heard_again(fleet: Fleet, state: Small, now: float, ttl_s: float) -> Flags:
    """Lost telemetry is back with the first beat after the silence: a Hello tells no figures."""
    n = fleet.size
    up = (state == _LOADING) | (state == _READY) | (state == _DRAINING)
    grace_over = fleet.held[:n] & (now >= fleet.hold_until[:n])
    told = fleet.telemetry_at[:n] >= fleet.last_heard[:n] - ttl_s
    found: Flags = up & told & (fleet.telemetry_lost[:n] | grace_over)
    return found


def _drained(fleet: Fleet, state: Small) -> Flags:
    n = fleet.size
    read_at = np.where(np.isnan(fleet.engine_read_at[:n]), fleet.telemetry_at[:n], fleet.engine_read_at[:n])
    settled = read_at >= fleet.state_since[:n] + DRAIN_SETTLE_S
    found: Flags = (state == _DRAINING) & (fleet.in_flight[:n] == 0) & settled
    return found


def _forgotten(fleet: Fleet, state: Small, now: float, settings: LifecycleSettings) -> Flags:
    """FAILED and TERMINATED rows of which nothing was heard for the retention: a cell that its
    agent still speaks for is kept, so that it can be undrained or come back, and one that somebody
    drained for as long as that stands, unless its agent has given it up: to drain a cell and then
    to take it out of the config is how cells are retired."""
    n = fleet.size
    last = np.maximum(fleet.state_since[:n], fleet.last_heard[:n])
    kept = fleet.drained[:n].copy()
    kept[fleet.withdrawn_rows()] = False
    out = ((state == _FAILED) | (state == _TERMINATED)) & ~kept
    found: Flags = out & (now - last >= settings.retention_s)
    return found
