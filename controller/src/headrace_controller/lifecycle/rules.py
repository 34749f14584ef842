"""One step of a life: event in, new life and instructions out."""

from __future__ import annotations

from dataclasses import replace

from headrace_controller.lifecycle import effects
from headrace_controller.lifecycle.instructions import (
    Forget,
    Instruction,
    NotifyDrained,
    Publish,
    TellAgentDrain,
    TellAgentUndrain,
)
from headrace_controller.lifecycle.states import (
    BY_ENGINE,
    CellLife,
    CellState,
    Event,
    EventKind,
    IllegalTransition,
    Transition,
    story,
)
from headrace_controller.lifecycle.table import TRANSITIONS, Branch
from headrace_controller.settings import LifecycleSettings


class BrokenInvariantError(AssertionError):
    """A life that contradicts itself: a fault in the table, never in the input."""


def begin(cell_id: str, now: float, cause: str) -> CellLife:
    """The life of a cell that was just named for the first time."""
    start = Transition(now, None, CellState.LOADING, EventKind.REGISTERED, cause)
    return CellLife(cell_id, CellState.LOADING, now, cause, history=(start,))


def step(
    life: CellLife, event: Event, now: float, settings: LifecycleSettings
) -> tuple[CellLife, tuple[Instruction, ...]]:
    """Apply one event. Changes nothing but what it returns; raises IllegalTransition.

    After every step `check` holds for the new life.
    """
    branch = _choose(life, event, now)
    new = life if branch.to is None else effects.enter(life, branch.to, now, settings)
    for effect in branch.effects:
        new = effect(new, event, now, settings)
    if new == life:
        return life, _instructions(life, life, event, now)
    cause = event.cause or event.kind.value
    record = Transition(now, life.state, new.state, event.kind, cause)
    new = replace(new, cause=cause, history=(*life.history, record)[-settings.history :])
    check(new)
    return new, _instructions(life, new, event, now)


def check(life: CellLife) -> None:
    """Raise BrokenInvariantError unless all of this holds:

    - a life is READY if and only if it has a start of its ramp, not later than `since`;
    - a READY life's hold-down is over, and no drain stands against it;
    - a DRAINING life has a drain; only DRAINING and TERMINATED lives have one;
    - FAILED and TERMINATED lives hold no weight and lose no telemetry;
    - only a FAILED life waits for a restart, and only a READY one is doubted;
    - the newest entry of the history tells the present state.
    """
    state = life.state
    down = state in (CellState.FAILED, CellState.TERMINATED)
    promises = {
        "READY if and only if ramping from a start": (state is CellState.READY)
        == (life.ready_since is not None and life.ready_since <= life.since),
        "hold-down over when READY": state is not CellState.READY or life.hold_down_until <= life.since,
        "a drain when DRAINING": state is not CellState.DRAINING or life.drain is not None,
        "no drain elsewhere": life.drain is None or state in (CellState.DRAINING, CellState.TERMINATED),
        "nothing held when down": not (down and (life.held or life.telemetry_lost)),
        "only FAILED waits for a restart": life.broken_at is None or state is CellState.FAILED,
        "only READY is doubted": not life.doubted or state is CellState.READY,
        "history tells the state": bool(life.history) and life.history[-1].to is state,
    }
    broken = [name for name, kept in promises.items() if not kept]
    if broken:
        raise BrokenInvariantError(f"{'; '.join(broken)}\n{story(life)}")


def _choose(life: CellLife, event: Event, now: float) -> Branch:
    rule = TRANSITIONS.get((life.state, event.kind))
    for branch in rule.branches if rule else ():
        if branch.when is None or branch.when(life, event, now):
            return branch
    raise IllegalTransition(life, event)


def _instructions(old: CellLife, new: CellLife, event: Event, now: float) -> tuple[Instruction, ...]:
    """What follows from the difference between two lives."""
    todo: list[Instruction] = []
    if old.carries_weight != new.carries_weight:
        todo.append(Publish(new.cell_id, new.cause))
    todo += _drain_news(old, new, event, now)
    if event.kind is EventKind.RETENTION_OVER:
        todo.append(Forget(new.cell_id))
    return tuple(todo)


def _drain_news(old: CellLife, new: CellLife, event: Event, now: float) -> list[Instruction]:
    """Tell the agent of a drain's start and cancelling, and whoever asked of its end."""
    todo: list[Instruction] = []
    if new.drain != old.drain and new.drain and not new.asleep and new.state is CellState.DRAINING:
        todo.append(TellAgentDrain(new.cell_id, new.cause, new.drain.deadline - now))
    asked = old.drain is not None and old.drain.requested_by != BY_ENGINE
    if event.kind is EventKind.DRAIN_CANCELLED and asked:
        todo.append(TellAgentUndrain(new.cell_id))
    if old.state is CellState.DRAINING and old.drain and asked:
        if new.state is CellState.TERMINATED:
            todo.append(_notify(new.cell_id, old, event.cause or event.kind.value))
        elif new.drain != old.drain:
            over = event.kind is EventKind.DRAIN_CANCELLED
            todo.append(_notify(new.cell_id, old, "cancelled" if over else "replaced by another drain"))
    elif new.state is CellState.TERMINATED and event.kind is EventKind.DRAIN_ASKED:
        todo.append(_notify(new.cell_id, new, f"nothing to drain, the cell was {old.state.name}"))
    return todo


def _notify(cell_id: str, life: CellLife, outcome: str) -> NotifyDrained:
    assert life.drain is not None
    return NotifyDrained(cell_id, life.drain.requested_by, life.drain.target, outcome)
