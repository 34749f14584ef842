"""All lives, and their mirror in the fleet's columns.

Invariant: after every call each row in use has a life, and what `lifecycle.mirror` says of it stands in its
columns, which nobody else writes. `Book.check` tests that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headrace_controller.inventory import (
    CellAdded,
    CellChanged,
    CellReturned,
    CellTakenOver,
    CellWithdrawn,
    Change,
    Fleet,
    MemberChange,
    is_old,
)
from headrace_controller.lifecycle import mirror, rules
from headrace_controller.lifecycle.decide import find_events, serving_s
from headrace_controller.lifecycle.faults import Fault, fatal_fault
from headrace_controller.lifecycle.hung import HungWatch
from headrace_controller.lifecycle.instructions import (
    AskEngine,
    Forget,
    Instruction,
    Publish,
    TellAgentDrain,
)
from headrace_controller.lifecycle.rules import BrokenInvariantError
from headrace_controller.lifecycle.silence import Silence, SilenceWatch
from headrace_controller.lifecycle.states import (
    BY_ENGINE,
    CellLife,
    CellState,
    Event,
    EventKind,
    Transition,
    story,
)
from headrace_controller.settings import LifecycleSettings
from headrace_pb.v1 import telemetry_pb2 as pb

LOG_LENGTH: Final = 4096
MAX_GRACE_S: Final = 3600.0
UNANSWERED_LIMIT: Final = 2
"""So many questions in a row must stay unanswered before a silent cell is given up."""

_WIRE_EVENTS: Final = {
    pb.CELL_EVENT_KIND_ENGINE_DOWN: EventKind.ENGINE_DOWN,
    pb.CELL_EVENT_KIND_ENGINE_LOADING: EventKind.ENGINE_LOADING,
    pb.CELL_EVENT_KIND_ENGINE_HUNG: EventKind.ENGINE_HUNG,
    pb.CELL_EVENT_KIND_ENGINE_SLEEPING: EventKind.ENGINE_SLEEPING,
    pb.CELL_EVENT_KIND_DRAIN_FINISHED: EventKind.DRAIN_FINISHED,
}


class Answer(Enum):
    """What the engine itself said when its agent was silent."""

    ALIVE = "alive"
    DEAD = "dead"
    """Refused the connection, or answered that it is not healthy."""
    NO_ANSWER = "no answer"
    """Timed out or could not be reached: no proof alone. The second in a row counts as dead, unless
    too many are silent at once or a planned goodbye's grace runs."""


@dataclass(frozen=True, slots=True)
class LoggedTransition:
    """One entry of the log of all cells."""

    cell_id: str
    transition: Transition


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick brought. `alarm`: self-preservation withholds expiries, or the failing of engines that
    hang; `silent_share`: of
    the READY cells, how many count as silent, 0 to 1; `members`: which nodes under others' cells
    fell silent or are back."""

    instructions: tuple[Instruction, ...]
    transitions: tuple[LoggedTransition, ...]
    alarm: bool
    silent_share: float
    members: tuple[MemberChange, ...] = ()


class Book:
    """Takes what happened, steps the lives, and says what is to be done.

    `kept` names the cells that were READY in the snapshot of a controller before this one: they
    are adopted without a ramp as soon as their agent says that they serve.
    """

    def __init__(self, fleet: Fleet, settings: LifecycleSettings, kept: frozenset[str] = frozenset()) -> None:
        self._fleet = fleet
        self._settings = settings
        self._kept = kept
        self._lives: dict[str, CellLife] = {}
        self._watch = SilenceWatch(settings)
        self._hung = HungWatch(settings)
        self._fresh: list[LoggedTransition] = []
        self._undated: dict[str, Fault] = {}
        self.transitions: deque[LoggedTransition] = deque(maxlen=LOG_LENGTH)
        self.changes = 0
        """How often any life has changed."""

    def use(self, settings: LifecycleSettings) -> None:
        """Other times are in force from the next event on; a deadline that is set stays as it is."""
        self._settings = settings
        self._watch.use(settings)
        self._hung.use(settings)

    def life(self, cell_id: str) -> CellLife:
        """One cell's life. Raises KeyError."""
        return self._lives[cell_id]

    def lives(self) -> tuple[CellLife, ...]:
        """All lives, sorted by cell id."""
        return tuple(self._lives[cell_id] for cell_id in sorted(self._lives))

    def story(self, cell_id: str) -> str:
        """The cell's history for people. Raises KeyError."""
        return story(self._lives[cell_id])

    def registered(self, changes: Iterable[Change], now: float) -> tuple[Instruction, ...]:
        """Take in what a Hello changed; call it with the result of every `Fleet.register`."""
        todo: list[Instruction] = []
        for change in changes:
            todo += self._registered(change, now)
        return tuple(todo)

    def happened(self, event: pb.CellEvent, now: float) -> tuple[Instruction, ...]:
        """Take in an agent's immediate event, after `Fleet.note_event` accepted it.

        That an engine serves waits for the next beat, which tells since when. So does an old
        hardware fault, until it is known whether the engine began to serve before it or after.
        """
        if event.cell_id not in self._lives:
            return ()
        fault = fatal_fault(event, now)
        if fault is not None:
            return self._broke(event.cell_id, fault, now, old=is_old(event))
        kind = _WIRE_EVENTS.get(event.kind)
        if kind is None:
            return ()
        return self.apply(event.cell_id, self._weighed(event.cell_id, Event(kind, event.cause), now), now)

    def goodbye(self, node: str, planned: bool, grace_s: float, now: float) -> tuple[Instruction, ...]:
        """An agent leaves. A planned leave holds its cells' weights, and what it said as a member of
        others' cells, for `grace_s`, at most MAX_GRACE_S; after an unplanned one silence takes its course."""
        todo: list[Instruction] = []
        if not planned:
            return ()
        grace_s = min(grace_s, MAX_GRACE_S)
        self._fleet.hold_members(node, now + grace_s)
        for cell_id in self._fleet.node_cells(node):
            if cell_id in self._lives:
                self._fleet.forget_engine_word(self._fleet.row(cell_id))
                event = Event(EventKind.GOODBYE_PLANNED, grace_s=grace_s)
                todo += self.apply(cell_id, event, now)
        return tuple(todo)

    def answered(self, cell_id: str, answer: Answer, now: float) -> tuple[Instruction, ...]:
        """The outcome of an AskEngine. An answer about a cell that was heard or forgotten
        meanwhile changes nothing; an unanswered question is asked again at once, once."""
        row = self._fleet.get(cell_id)
        if row is None or cell_id not in self._lives:
            return ()
        if now - self._fleet.last_heard[row] <= self._settings.ttl_s:
            return ()
        kind = EventKind.SILENCE_DEAD
        # An agent that has said it leaves is awaited, and not lost.
        awaited = now < self._fleet.hold_until[row]
        if answer is Answer.ALIVE:
            self._watch.note_answer(row)
            if awaited:
                return ()
            kind = EventKind.SILENCE_ALIVE
        elif answer is Answer.NO_ANSWER:
            unanswered = self._watch.note_no_answer(row)
            if awaited:
                return ()
            if self._watch.is_withheld(row):
                kind = EventKind.SILENCE_WITHHELD
            elif unanswered < UNANSWERED_LIMIT:
                return (AskEngine(cell_id),)
        return self.apply(cell_id, Event(kind, f"agent silent, engine: {answer.value}"), now)

    def drain(
        self,
        cell_id: str,
        now: float,
        *,
        requested_by: str,
        cause: str,
        deadline_s: float | None = None,
        target: str = "",
    ) -> tuple[Instruction, ...]:
        """Take the cell out of service and let its requests finish. `requested_by` and `target`
        come back in NotifyDrained. Raises KeyError for an unknown cell."""
        event = Event(
            EventKind.DRAIN_ASKED, cause, deadline_s=deadline_s, requested_by=requested_by, target=target
        )
        return self.apply(cell_id, event, now)

    def undrain(self, cell_id: str, now: float, cause: str) -> tuple[Instruction, ...]:
        """Cancel a drain, also a finished one. Raises KeyError for an unknown cell and
        IllegalTransition for one that is not drained."""
        asleep = self._fleet.engine_state[self._fleet.row(cell_id)] == pb.ENGINE_STATE_SLEEPING
        event = Event(EventKind.DRAIN_CANCELLED, cause, requested_by=BY_ENGINE if asleep else "")
        return self.apply(cell_id, event, now)

    def standing_drains(self, node: str, now: float) -> tuple[TellAgentDrain, ...]:
        """The drains under way on a node, for its agent, which may have missed or forgotten them."""
        lives = [self._lives[cell_id] for cell_id in self._fleet.node_cells(node) if cell_id in self._lives]
        return tuple(
            TellAgentDrain(life.cell_id, life.drain.cause or life.cause, max(0.0, life.drain.deadline - now))
            for life in lives
            if life.state is CellState.DRAINING and life.drain is not None and life.drained
        )

    def tick(self, now: float, lateness: float = 0.0) -> Tick:
        """Find what changed since the last tick and act on it. `lateness`: by how many seconds
        this tick came later than planned."""
        members = self._fleet.crews.judge(now, self._settings.ttl_s, lateness)
        silence = self._watch.scan(self._fleet, now, lateness)
        todo = self._silent(silence, now)
        for cell_id, fault in list(self._undated.items()):
            todo += self._broke(cell_id, fault, now, old=True)
        for cell_id, event in find_events(self._fleet, now, self._settings, self._kept):
            todo += self.apply(cell_id, self._weighed(cell_id, event, now), now)
        self._fleet.forget_pools(now)
        self._fleet.forget_nodes(now)
        fresh, self._fresh = tuple(self._fresh), []
        alarm = silence.alarm or bool(self._fleet.doubted[: self._fleet.size].any())
        return Tick(tuple(todo), fresh, alarm, silence.share, members)

    def apply(self, cell_id: str, event: Event, now: float) -> tuple[Instruction, ...]:
        """Step one life. Raises KeyError for an unknown cell, IllegalTransition for an event that
        cannot happen to it; nothing is changed then."""
        old = self._lives[cell_id]
        new, todo = rules.step(old, event, now, self._settings)
        if new is not old:
            self._keep(new)
        if new.state is CellState.READY:
            self._kept -= {cell_id}
        if any(isinstance(each, Forget) for each in todo):
            del self._lives[cell_id]
            self._undated.pop(cell_id, None)
            self._fleet.remove(cell_id)
        return todo

    def check(self) -> None:
        """Raise BrokenInvariantError unless the lives keep their promises and the columns mirror them."""
        fleet = self._fleet
        if sorted(self._lives) != list(fleet.cell_ids()):
            raise BrokenInvariantError("the fleet and the book name different cells")
        for life in self._lives.values():
            rules.check(life)
            mirror.check(fleet, life)

    def _registered(self, change: Change, now: float) -> tuple[Instruction, ...]:
        cell_id = change.cell_id
        match change:
            case CellAdded():
                self._keep(rules.begin(cell_id, now, f"named by {self._node(cell_id)}"))
            case CellReturned():
                return self.apply(cell_id, Event(EventKind.REGISTERED, "named again by its agent"), now)
            case CellTakenOver():
                cause = f"taken over by {self._node(cell_id)} from {change.from_node}"
                return self.apply(cell_id, Event(EventKind.REGISTERED, cause), now)
            case CellWithdrawn():
                return self.apply(cell_id, Event(EventKind.WITHDRAWN, "no longer in its agent's config"), now)
            case CellChanged():
                if self._lives[cell_id].carries_weight:
                    return (Publish(cell_id, "its address or models changed"),)
        return ()

    def _broke(self, cell_id: str, fault: Fault, now: float, old: bool) -> tuple[Instruction, ...]:
        """The cell's hardware failed at `fault.at`; an old fault waits for the engine's word since."""
        self._undated.pop(cell_id, None)
        row = self._fleet.row(cell_id)
        served = serving_s(self._fleet, row, now) if self._fleet.engine_at[row] > fault.at else None
        if served is None and old:
            self._undated[cell_id] = fault
            return ()
        age = max(0.0, now - fault.at)
        event = Event(EventKind.HARDWARE_FATAL, fault.cause, serving_s=served or 0.0, age_s=age)
        return self.apply(cell_id, event, now)

    def _weighed(self, cell_id: str, event: Event, now: float) -> Event:
        """The event, or what it amounts to when too many engines are said to hang at once."""
        if event.kind is not EventKind.ENGINE_HUNG or self._lives[cell_id].state is not CellState.READY:
            return event
        if self._hung.withholds(self._fleet, now):
            return Event(
                EventKind.HUNG_WITHHELD, f"too many engines hang at once; {event.cause}".rstrip("; ")
            )
        self._hung.note_failed(self._node(cell_id), now)
        return event

    def _silent(self, silence: Silence, now: float) -> list[Instruction]:
        todo: list[Instruction] = []
        for row in silence.withheld.tolist():
            withheld = Event(EventKind.SILENCE_WITHHELD, "too many agents silent at once")
            todo += self.apply(self._id(row), withheld, now)
        for row in silence.dead.tolist():
            todo += self.apply(self._id(row), Event(EventKind.SILENCE_DEAD, "agent silent"), now)
        todo += [AskEngine(self._id(row)) for row in silence.ask.tolist()]
        return todo

    def _id(self, row: int) -> str:
        return self._fleet.facts_of(row).cell_id

    def _node(self, cell_id: str) -> str:
        return self._fleet.facts_of(self._fleet.row(cell_id)).node

    def _keep(self, life: CellLife) -> None:
        """Store a life, mirror it, and log its newest transition."""
        self._lives[life.cell_id] = life
        self.changes += 1
        mirror.write(self._fleet, life)
        logged = LoggedTransition(life.cell_id, life.history[-1])
        self.transitions.append(logged)
        self._fresh.append(logged)
