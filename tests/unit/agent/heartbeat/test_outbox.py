"""What is told to a controller, in which order, how often."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace_agent.collectors.readings import CellEvent, EventKind
from headrace_agent.heartbeat.build import build_goodbye
from headrace_agent.heartbeat.outbox import Outbox
from headrace_pb.v1 import telemetry_pb2 as pb

NOW = 1000.0


class Report:
    """A reporter whose words the test sets."""

    def __init__(self) -> None:
        self.version = "1"
        self.built = 0

    def hello(self, now: float) -> pb.Hello:
        return pb.Hello(node="n", agent_version=self.version)

    def telemetry(self, now: float) -> pb.Telemetry:
        self.built += 1
        return pb.Telemetry(cells=[pb.CellBeat(cell_id=f"built {self.built}")])


def kinds(outbox: Outbox) -> list[str | None]:
    """Take everything that is due."""
    taken: list[str | None] = []
    while (message := outbox.take(NOW)) is not None:
        taken.append(message.WhichOneof("body"))
    return taken


def begun(report: Report | None = None, limit: int = 4096) -> Outbox:
    """An outbox whose stream has begun and has said its first words."""
    outbox = Outbox(report or Report(), limit)
    outbox.begin()
    kinds(outbox)
    return outbox


def down(cell: str = "c1") -> CellEvent:
    return CellEvent(cell, EventKind.ENGINE_DOWN, "refused")


def serving(cell: str = "c1") -> CellEvent:
    return CellEvent(cell, EventKind.ENGINE_SERVING, "answered")


def event_ids(outbox: Outbox) -> list[int]:
    """Take everything that is due; the ids of the events in it."""
    ids = []
    while (message := outbox.take(NOW)) is not None:
        if message.WhichOneof("body") == "event":
            ids.append(message.event.event_id)
    return ids


def test_a_stream_begins_with_hello_and_telemetry() -> None:
    outbox = Outbox(Report())
    outbox.begin()
    assert kinds(outbox) == ["hello", "telemetry"]


def test_the_order_of_kinds() -> None:
    outbox = begun()
    outbox.want_liveness()
    outbox.want_telemetry()
    outbox.add(down(), NOW)
    outbox.want_hello()
    assert kinds(outbox) == ["hello", "event", "telemetry"], "liveness is moot after an event"


def test_liveness_is_told_alone_and_once() -> None:
    outbox = begun()
    outbox.want_liveness()
    outbox.want_liveness()
    assert kinds(outbox) == ["liveness"]


def test_a_telemetry_beat_is_built_when_it_is_taken_and_only_then() -> None:
    """A controller that takes nothing for a while gets one beat, of the moment it takes it."""
    report = Report()
    outbox = begun(report)
    built = report.built
    for _ in range(5):
        outbox.want_telemetry()
    assert report.built == built
    message = outbox.take(NOW)
    assert message is not None
    assert message.telemetry.cells[0].cell_id == f"built {built + 1}"
    assert outbox.take(NOW) is None


def test_changed_facts_are_told_before_the_telemetry_that_rests_on_them() -> None:
    report = Report()
    outbox = begun(report)
    report.version = "2"
    outbox.want_telemetry()
    assert kinds(outbox) == ["hello", "telemetry"]
    outbox.want_telemetry()
    assert kinds(outbox) == ["telemetry"]


def test_changed_facts_are_told_before_an_event() -> None:
    report = Report()
    outbox = begun(report)
    report.version = "2"
    outbox.add(serving(), NOW)
    assert kinds(outbox) == ["hello", "event"]


def test_events_are_told_once_a_stream_until_acknowledged() -> None:
    outbox = begun()
    outbox.add(down(), NOW)
    outbox.add(serving(), NOW)
    assert event_ids(outbox) == [1, 2]
    assert event_ids(outbox) == []
    outbox.acknowledge(1)
    assert outbox.unacked == 1
    outbox.begin()
    outbox.add(down("c2"), NOW)
    assert event_ids(outbox) == [2, 3]
    outbox.acknowledge(3)
    outbox.begin()
    assert event_ids(outbox) == []


def test_an_acknowledgement_cannot_reach_events_not_told_yet() -> None:
    """A controller that acknowledges too much must not cost an event."""
    outbox = begun()
    outbox.add(down(), NOW)
    outbox.acknowledge(2**63)
    assert event_ids(outbox) == [1]


def test_the_bound_costs_the_oldest_moot_event_of_the_same_cell() -> None:
    outbox = begun(limit=3)
    assert outbox.add(down("c1"), NOW)
    assert outbox.add(down("c2"), NOW)
    assert outbox.add(serving("c2"), NOW)
    assert not outbox.add(CellEvent("c3", EventKind.XID, "XID 79", 79), NOW)
    assert outbox.dropped == 1
    assert event_ids(outbox) == [1, 3, 4], "c2's engine went down and came back: going down is moot"


def test_the_bound_with_nothing_moot_costs_the_oldest() -> None:
    outbox = begun(limit=2)
    for cell in ("c1", "c2", "c3"):
        outbox.add(down(cell), NOW)
    assert event_ids(outbox) == [2, 3]
    assert outbox.dropped == 1


def test_a_different_xid_is_not_moot() -> None:
    outbox = begun(limit=2)
    for xid in (48, 79, 79):
        outbox.add(CellEvent("c1", EventKind.XID, f"XID {xid}", xid), NOW)
    assert event_ids(outbox) == [1, 3]


def test_the_bound_counts_events_told_and_not_acknowledged() -> None:
    outbox = begun(limit=2)
    outbox.add(down(), NOW)
    outbox.add(serving(), NOW)
    assert event_ids(outbox) == [1, 2]
    outbox.add(down(), NOW)
    outbox.begin()
    assert event_ids(outbox) == [2, 3]


def test_goodbye_follows_the_events_and_ends_everything() -> None:
    outbox = begun()
    outbox.want_telemetry()
    outbox.want_liveness()
    outbox.leave(build_goodbye(True, 1.0, "stopped"))
    outbox.add(down(), NOW)
    assert kinds(outbox) == ["event", "goodbye"]
    assert outbox.closed
    outbox.add(serving(), NOW)
    outbox.want_telemetry()
    assert outbox.take(NOW) is None


class OutboxMachine(RuleBasedStateMachine):
    """Any interleaving of offers, takes, acknowledgements and reconnects."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox(Report())
        self.outbox.begin()
        self.seq = 0
        self.said_hello = False
        self.offered = 0
        self.acked = 0
        self.told: list[int] = []

    @rule(kind=st.sampled_from([EventKind.ENGINE_DOWN, EventKind.ENGINE_SERVING]))
    def offer(self, kind: EventKind) -> None:
        assert self.outbox.add(CellEvent("c1", kind, ""), NOW)
        self.offered += 1

    @rule()
    def beat(self) -> None:
        self.outbox.want_telemetry()
        self.outbox.want_liveness()

    @rule()
    def reconnect(self) -> None:
        self.outbox.begin()
        self.seq, self.said_hello, self.told = 0, False, []

    @rule(event_id=st.integers(0, 40))
    def acknowledge(self, event_id: int) -> None:
        self.outbox.acknowledge(event_id)
        self.acked = max([self.acked, *(each for each in self.told if each <= event_id)])

    @rule()
    def take(self) -> None:
        message = self.outbox.take(NOW)
        if message is None:
            return
        kind = message.WhichOneof("body")
        if kind == "hello":
            self.said_hello = True
            return
        assert self.said_hello, "nothing comes before the Hello"
        assert kind is not None
        assert getattr(message, kind).seq == self.seq + 1
        self.seq += 1
        if kind == "event":
            expected = self.told[-1] + 1 if self.told else self.acked + 1
            assert message.event.event_id == expected, "no event is left out, told twice or out of order"
            self.told.append(expected)

    @invariant()
    def keeps_what_is_not_acknowledged(self) -> None:
        assert self.outbox.unacked == self.offered - self.acked


OutboxMachine.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
TestOutboxMachine = OutboxMachine.TestCase


def test_an_event_told_late_says_how_old_it_is() -> None:
    outbox = begun()
    outbox.add(down(), NOW)
    message = outbox.take(NOW + 0.004)
    assert message is not None
    assert message.event.age_ms == 4
    outbox.begin()
    kinds_again = [outbox.take(NOW + 90.0), outbox.take(NOW + 90.0)]
    assert kinds_again[1] is not None
    assert kinds_again[1].event.age_ms == 90_000
