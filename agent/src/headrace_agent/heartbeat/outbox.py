"""What one controller is still to be told, and in which order. Pure: no clock, no sockets.

State (Hello, telemetry, liveness) is only *wanted*: it is built when it is taken, so that what
leaves is always the newest and a controller that takes nothing piles up nothing. Events are kept,
in order, until the controller acknowledges them, and are told again on every new stream.

Order: Hello, events, Goodbye, telemetry, liveness. After a Goodbye nothing more is told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from headrace_agent.collectors.readings import CellEvent, EventKind
from headrace_agent.heartbeat.build import build_event
from headrace_pb.v1 import telemetry_pb2 as pb

MAX_EVENTS: Final = 4096

_ENGINE_STATES: Final = frozenset(
    {
        EventKind.ENGINE_DOWN,
        EventKind.ENGINE_LOADING,
        EventKind.ENGINE_SERVING,
        EventKind.ENGINE_HUNG,
        EventKind.ENGINE_SLEEPING,
    }
)


class Reporter(Protocol):
    """Builds the messages that say how things are at `now`, on the agent's clock."""

    def hello(self, now: float) -> pb.Hello:
        """Who speaks, and its cells' facts."""
        ...

    def telemetry(self, now: float) -> pb.Telemetry:
        """A full beat, without `seq`."""
        ...


@dataclass(frozen=True, slots=True)
class _Kept:
    id: int
    event: CellEvent
    at: float


class Outbox:
    """One controller's messages. `dropped` counts the events lost to the bound (normally none).

    Event ids rise by one per event offered here, from the one after `last_id` on, and are never
    reused; `seq` rises by one over the messages of one stream.
    """

    def __init__(self, reporter: Reporter, limit: int = MAX_EVENTS, last_id: int = 0) -> None:
        self._reporter = reporter
        self._limit = limit
        self._waiting: deque[_Kept] = deque()
        self._told: deque[_Kept] = deque()
        self.last_id = last_id
        self._seq = 0
        self._hello: pb.Hello | None = None
        self._want_telemetry = False
        self._want_liveness = False
        self._goodbye: pb.Goodbye | None = None
        self._withdraw = False
        self._closed = False
        self.dropped = 0

    @property
    def unacked(self) -> int:
        """Events that the controller has not acknowledged."""
        return len(self._waiting) + len(self._told)

    @property
    def closed(self) -> bool:
        """True once the Goodbye was taken."""
        return self._closed

    def begin(self) -> None:
        """A new stream: Hello first, then every unacknowledged event again, then telemetry."""
        self._waiting.extendleft(reversed(self._told))
        self._told.clear()
        self._seq = 0
        self._hello = None
        self._want_telemetry = True
        self._want_liveness = False

    def add(self, event: CellEvent, now: float) -> bool:
        """Keep an event of `now` until it is acknowledged; False when the bound cost an older one."""
        self.last_id += 1
        self._waiting.append(_Kept(self.last_id, event, now))
        if self.unacked <= self._limit:
            return True
        self._drop_one()
        return False

    def acknowledge(self, event_id: int) -> None:
        """Forget the events up to `event_id`; ids that were not told on this stream don't count."""
        while self._told and self._told[0].id <= event_id:
            self._told.popleft()

    def want_hello(self) -> None:
        """Say Hello again even if no fact changed."""
        self._hello = None

    def want_telemetry(self) -> None:
        """A telemetry beat is due."""
        self._want_telemetry = True

    def want_liveness(self) -> None:
        """A sign of life is due."""
        self._want_liveness = True

    def forget(self, cells: Collection[str]) -> None:
        """Drop the events of cells that this agent does not speak for any more: nobody would take them."""
        self._told = deque(each for each in self._told if each.event.cell_id not in cells)
        self._waiting = deque(each for each in self._waiting if each.event.cell_id not in cells)

    def leave(self, goodbye: pb.Goodbye, *, withdraw: bool = False) -> None:
        """Say Goodbye after the events that wait, and nothing after it.

        With `withdraw` a Hello without cells takes the place of the events: this agent will not
        speak for its cells here again.
        """
        self._goodbye = goodbye
        if withdraw:
            self._withdraw = True

    def take(self, now: float) -> pb.AgentMessage | None:
        """The next message to send at `now`, or None when nothing is due."""
        if self._closed:
            return None
        if self._withdraw and self._goodbye is not None:
            return self._take_withdrawal(self._goodbye, now)
        if self._hello is None or self._waiting or self._want_telemetry:
            hello = self._reporter.hello(now)
            if hello is not self._hello and hello != self._hello:
                self._hello = hello
                return pb.AgentMessage(hello=hello)
        if self._waiting:
            return self._take_event(now)
        if self._goodbye is not None:
            return self._take_goodbye(self._goodbye)
        if self._want_telemetry:
            return self._take_telemetry(now)
        if self._want_liveness:
            self._want_liveness = False
            return pb.AgentMessage(liveness=pb.Liveness(seq=self._next_seq()))
        return None

    def _take_event(self, now: float) -> pb.AgentMessage:
        kept = self._waiting.popleft()
        self._told.append(kept)
        event = build_event(kept.event, kept.id, now - kept.at)
        event.seq = self._next_seq()
        self._want_liveness = False
        return pb.AgentMessage(event=event)

    def _take_withdrawal(self, goodbye: pb.Goodbye, now: float) -> pb.AgentMessage:
        """The Hello without cells and then the Goodbye: any other Hello would name the cells again."""
        bare = _without_cells(self._reporter.hello(now))
        if self._hello == bare:
            return self._take_goodbye(goodbye)
        self._hello = bare
        return pb.AgentMessage(hello=bare)

    def _take_goodbye(self, goodbye: pb.Goodbye) -> pb.AgentMessage:
        self._closed = True
        goodbye.seq = self._next_seq()
        return pb.AgentMessage(goodbye=goodbye)

    def _take_telemetry(self, now: float) -> pb.AgentMessage:
        self._want_telemetry = self._want_liveness = False
        telemetry = self._reporter.telemetry(now)
        telemetry.seq = self._next_seq()
        return pb.AgentMessage(telemetry=telemetry)

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _drop_one(self) -> None:
        """Drop the oldest event that a later one of its cell makes moot; failing that, the oldest."""
        kept = [*self._told, *self._waiting]
        later: set[tuple[object, ...]] = set()
        victim = kept[0]
        for each in reversed(kept):
            subject = _subject(each.event)
            if subject in later:
                victim = each
            later.add(subject)
        (self._told if victim in self._told else self._waiting).remove(victim)
        self.dropped += 1


def _without_cells(hello: pb.Hello) -> pb.Hello:
    return pb.Hello(
        node=hello.node, site=hello.site, agent_version=hello.agent_version, incarnation=hello.incarnation
    )


def _subject(event: CellEvent) -> tuple[object, ...]:
    """What an event is about; a later event about the same makes an earlier one moot."""
    if event.kind in _ENGINE_STATES:
        return (event.cell_id, "engine state")
    return (event.cell_id, event.kind, event.xid)
