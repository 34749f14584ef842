"""Who may report for a cell that another node speaks for, and what of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from headrace_controller.ingest.figures import MAX_SOURCES, check_telemetry
from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.rosters import MAX_LEFT, Rosters
from headrace_controller.ingest.sessions import Session
from headrace_controller.ingest.validation import (
    MAX_CELLS,
    MAX_GPUS,
    MAX_NODES,
    check_cell,
    check_hello,
    check_member,
)
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import CELL_SIGNALS, GPU_SIGNALS

LOST = pb.CELL_EVENT_KIND_GPU_LOST


def cell(cell_id: str, *nodes: str) -> pb.CellFacts:
    address = pb.Address(host="127.0.0.1", port=8000)
    return pb.CellFacts(cell_id=cell_id, address=address, member_nodes=nodes)


def hello(
    node: str, cells: tuple[pb.CellFacts, ...] = (), members: tuple[str, ...] = (), incarnation: int = 1
) -> pb.Hello:
    named = [pb.MemberFacts(cell_id=each) for each in members]
    return pb.Hello(node=node, site="a", incarnation=incarnation, cells=cells, members=named)


class Sink:
    """Remembers what was passed on."""

    def __init__(self) -> None:
        self.hellos: list[pb.Hello] = []
        self.beats: list[pb.Telemetry] = []
        self.events: list[tuple[str, pb.CellEvent]] = []

    def hello(self, hello: pb.Hello, now: float) -> None:
        self.hellos.append(hello)

    def telemetry(self, node: str, telemetry: pb.Telemetry, now: float, *_: object) -> None:
        self.beats.append(telemetry)

    def event(self, node: str, event: pb.CellEvent, now: float) -> None:
        self.events.append((node, event))

    def alive(self, node: str, now: float) -> None: ...

    def goodbye(self, node: str, goodbye: pb.Goodbye, now: float) -> None: ...

    def stream_lost(self, node: str, now: float) -> None: ...


class Desk:
    """An intake, and what each node was told."""

    def __init__(self) -> None:
        self.sink = Sink()
        self.rejections: list[str] = []
        self.intake = Intake(self.sink, pb.Welcome, on_rejection=self.rejections.append)
        self.told: dict[str, dict[str, str]] = {}
        self.seq: dict[str, int] = {}

    def open(self, said: pb.Hello) -> Session:
        session = self.intake.open(said, local=True)
        assert isinstance(session, Session)
        self._tell(said.node, self.intake.greet(session, said, 0.0))
        self._spread()
        return session

    def again(self, session: Session, said: pb.Hello) -> None:
        answer = self.intake.take(session, pb.AgentMessage(hello=said), 0.0)
        assert answer is not None
        self._tell(said.node, answer)
        self._spread()

    def beat(self, session: Session, *members: pb.MemberBeat | str) -> list[str]:
        """The cells of the members that were passed on; none where the beat was rejected."""
        beats = [pb.MemberBeat(cell_id=each) if isinstance(each, str) else each for each in members]
        said = pb.Telemetry(seq=self._next(session), members=beats)
        before = len(self.sink.beats)
        self.intake.take(session, pb.AgentMessage(telemetry=said), 0.0)
        return [each.cell_id for beat in self.sink.beats[before:] for each in beat.members]

    def event(self, session: Session, cell_id: str, kind: Any = LOST) -> bool:
        """Whether it was passed on."""
        seq = self._next(session)
        said = pb.CellEvent(seq=seq, event_id=seq, cell_id=cell_id, kind=kind, cause="a GPU is gone")
        before = len(self.sink.events)
        self.intake.take(session, pb.AgentMessage(event=said), 0.0)
        return len(self.sink.events) > before

    def _next(self, session: Session) -> int:
        self.seq[session.id] = self.seq.get(session.id, 0) + 1
        return self.seq[session.id]

    def _tell(self, node: str, message: pb.ControllerMessage) -> None:
        self.told[node] = {each.cell_id: each.reason for each in message.welcome.refused}

    def _spread(self) -> None:
        for node, message in self.intake.news():
            self._tell(node, message)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_member_that_the_head_names_is_listened_to(desk: Desk) -> None:
    desk.open(hello("head", (cell("c1", "w1", "w2"),)))
    worker = desk.open(hello("w1", members=("c1",)))
    assert desk.told["w1"] == {}
    assert desk.beat(worker, "c1") == ["c1"]
    assert desk.event(worker, "c1")
    assert desk.sink.events[0][1].cause == "node w1: a GPU is gone", "whose GPU it was must be told"
    assert [each.cell_id for each in desk.sink.hellos[-1].members] == ["c1"]
    assert desk.rejections == []


def test_a_node_that_the_head_does_not_name_is_refused_with_the_remedy(desk: Desk) -> None:
    """A stolen agent must not be able to spoil a cell, and least of all to fail it."""
    desk.open(hello("head", (cell("c1", "w1"),)))
    with capture_logs() as logs:
        thief = desk.open(hello("w9", members=("c1",)))
    assert "node head speaks for cell c1 and does not name node w9" in desk.told["w9"]["c1"]
    assert "add it to the cell's nodes there, or take the cell out of members" in desk.told["w9"]["c1"]
    assert [(line["event"], line["cell"]) for line in logs] == [("member refused", "c1")]
    assert desk.rejections == ["member_refused"]
    assert desk.beat(thief, "c1") == []
    assert not desk.event(thief, "c1")
    assert desk.rejections == ["member_refused", "foreign_cell"], "a beat that was told of counts once"


def test_a_member_that_comes_before_its_head_waits_and_is_told_when_it_may_speak(desk: Desk) -> None:
    worker = desk.open(hello("w1", members=("c1",)))
    assert "no node has spoken for cell c1 yet" in desk.told["w1"]["c1"]
    assert "mend the cell's id in members" in desk.told["w1"]["c1"]
    assert desk.rejections == ["member_waiting"]
    assert desk.beat(worker, "c1") == []
    desk.open(hello("head", (cell("c1", "w1"),)))
    assert desk.told["w1"] == {}, "a new Welcome without being asked"
    assert desk.beat(worker, "c1") == ["c1"]


def test_the_heads_newest_list_counts_and_both_sides_are_told(desk: Desk) -> None:
    head = desk.open(hello("head", (cell("c1", "w1"),)))
    first, second = desk.open(hello("w1", members=("c1",))), desk.open(hello("w2", members=("c1",)))
    desk.again(head, hello("head", (cell("c1", "w2"),)))
    assert desk.told.keys() == {"head", "w1", "w2"}
    assert "does not name node w1" in desk.told["w1"]["c1"]
    assert desk.told["w2"] == {}
    assert (desk.beat(first, "c1"), desk.beat(second, "c1")) == ([], ["c1"])


def test_a_cell_that_its_head_gives_up_has_no_members(desk: Desk) -> None:
    head = desk.open(hello("head", (cell("c1", "w1"), cell("c2"))))
    worker = desk.open(hello("w1", members=("c1",)))
    desk.again(head, hello("head", (cell("c2"),)))
    assert "no node has spoken for cell c1" in desk.told["w1"]["c1"]
    assert desk.beat(worker, "c1") == []


def test_members_go_on_while_the_heads_agent_is_away(desk: Desk) -> None:
    head = desk.open(hello("head", (cell("c1", "w1"),)))
    worker = desk.open(hello("w1", members=("c1",)))
    desk.intake.close(head, 0.0)
    assert desk.beat(worker, "c1") == ["c1"]
    late = desk.open(hello("w9", members=("c1",)))
    assert desk.beat(late, "c1") == [], "its list stands while it is away"
    desk.open(hello("head", (cell("c1", "w1"),), incarnation=2))
    assert desk.beat(worker, "c1") == ["c1"]


def test_a_list_from_before_the_last_one_never_counts_again(desk: Desk) -> None:
    for nodes in (("w1",), ()):
        desk.intake.close(desk.open(hello("head", (cell("c1", *nodes),))), 0.0)
    assert desk.beat(desk.open(hello("w1", members=("c1",))), "c1") == []


def test_a_cell_of_another_head_has_that_heads_members(desk: Desk) -> None:
    head = desk.open(hello("head", (cell("c1", "w1"),)))
    worker = desk.open(hello("w1", members=("c1",)))
    desk.intake.close(head, 0.0)
    desk.open(hello("head-2", (cell("c1", "w2"),)))
    assert "node head-2 speaks for cell c1" in desk.told["w1"]["c1"]
    assert desk.beat(worker, "c1") == []


def test_a_refused_cell_gives_nobody_a_word(desk: Desk) -> None:
    """A rival that names the cell, and itself as a member, has its cell refused and its list with it."""
    desk.open(hello("head", (cell("c1", "w1"),)))
    desk.open(hello("rival", (cell("c1", "thief"),)))
    thief = desk.open(hello("thief", members=("c1",)))
    assert desk.beat(thief, "c1") == []
    assert desk.beat(desk.open(hello("w1", members=("c1",))), "c1") == ["c1"]


@pytest.mark.parametrize(
    "kind", [each for each in pb.CellEventKind.values() if each not in (pb.CELL_EVENT_KIND_XID, LOST)]
)
def test_a_member_cannot_speak_for_the_engine(desk: Desk, kind: int) -> None:
    desk.open(hello("head", (cell("c1", "w1"),)))
    worker = desk.open(hello("w1", members=("c1",)))
    assert not desk.event(worker, "c1", kind)
    assert desk.rejections == ["member_event" if kind else "unknown_event"]


def test_a_member_cannot_send_the_cells_own_beat(desk: Desk) -> None:
    desk.open(hello("head", (cell("c1", "w1"),)))
    worker = desk.open(hello("w1", members=("c1",)))
    said = pb.Telemetry(seq=1, cells=[pb.CellBeat(cell_id="c1")])
    desk.intake.take(worker, pb.AgentMessage(telemetry=said), 0.0)
    assert [list(beat.cells) for beat in desk.sink.beats] == [[]]
    assert desk.rejections == ["foreign_cell"]


def test_a_beat_for_a_cell_that_no_hello_named_is_left_out_and_counted(desk: Desk) -> None:
    desk.open(hello("head", (cell("c1", "w1"), cell("c2", "w1"))))
    worker = desk.open(hello("w1", members=("c1",)))
    assert desk.beat(worker, "c1", "c2") == ["c1"]
    assert desk.rejections == ["foreign_cell"]


def test_a_restarted_worker_replaces_itself_and_another_under_its_name_is_refused(desk: Desk) -> None:
    desk.open(hello("head", (cell("c1", "w1"), cell("c2", "w1"))))
    old = desk.open(hello("w1", members=("c1",)))
    new = desk.open(hello("w1", members=("c1",), incarnation=2))
    assert (desk.beat(old, "c1"), desk.beat(new, "c1")) == ([], ["c1"])
    assert not isinstance(desk.intake.open(hello("w1", members=("c2",), incarnation=3), True), Session)


def test_one_bad_membership_is_refused_alone(desk: Desk) -> None:
    desk.open(hello("head", (cell("c1", "w1"),)))
    worker = desk.open(hello("w1", members=("c1", "no name")))
    assert desk.told["w1"].keys() == {"no name"}
    assert desk.rejections == ["bad_name"]
    assert desk.beat(worker, "c1") == ["c1"]


# Checks.


def test_a_cell_named_as_own_and_as_member_is_refused() -> None:
    found = check_hello(hello("n", (cell("c1"),), members=("c1",)))
    assert found is not None
    assert found.reason == "cell_twice"
    assert check_hello(hello("n", members=("c1", "c1"))) is not None
    assert check_hello(hello("n", (cell("c2"),), members=("c1",))) is None
    assert check_hello(hello("n")) is None


def test_sizes_are_bounded() -> None:
    assert check_hello(hello("n", members=tuple(f"c{n}" for n in range(MAX_CELLS + 1)))) is not None
    assert check_cell(cell("c1", *(f"w{n}" for n in range(MAX_NODES + 1)))) is not None
    assert check_cell(cell("c1", *(f"w{n}" for n in range(MAX_NODES)))) is None
    assert check_cell(cell("c1", "two words")) is not None
    gpus = [pb.GpuFacts(uuid=f"GPU-{n}") for n in range(MAX_GPUS + 1)]
    assert check_member(pb.MemberFacts(cell_id="c1", gpus=gpus)) is not None
    assert check_member(pb.MemberFacts(cell_id="c1", gpus=gpus[1:])) is None
    assert check_member(pb.MemberFacts(cell_id="c1", gpus=[pb.GpuFacts(uuid="x" * 1025)])) is not None
    assert (
        check_telemetry(pb.Telemetry(members=[pb.MemberBeat(cell_id=f"c{n}") for n in range(257)]))
        is not None
    )
    many = [pb.SourceBeat(name="dcgm")] * (MAX_SOURCES + 1)
    assert check_telemetry(pb.Telemetry(members=[pb.MemberBeat(cell_id="c", sources=many)])) is not None


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (pb.MemberBeat(signals=pb.Signals(gpu_util=float("nan"))), "bad_number"),
        (pb.MemberBeat(signals=pb.Signals(gpu_util=-0.1)), "bad_number"),
        (pb.MemberBeat(signals=pb.Signals(vram_util=93.0)), "bad_unit"),
        (pb.MemberBeat(hardware=pb.HardwareHealth(power_w=float("inf"))), "bad_number"),
        (pb.MemberBeat(signals=pb.Signals(queue_depth=0.0)), "foreign_signal"),
        (pb.MemberBeat(signals=pb.Signals(error_rate=0.5)), "foreign_signal"),
    ],
)
def test_a_member_beat_with_a_figure_it_cannot_have_is_rejected(member: pb.MemberBeat, reason: str) -> None:
    found = check_telemetry(pb.Telemetry(members=[member]))
    assert found is not None
    assert found.reason == reason


def test_a_member_told_twice_in_one_beat_is_rejected() -> None:
    found = check_telemetry(pb.Telemetry(members=[pb.MemberBeat(cell_id="c"), pb.MemberBeat(cell_id="c")]))
    assert found is not None
    assert found.reason == "cell_twice"


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(CELL_SIGNALS), st.floats(), max_size=4))
def test_no_member_beat_gets_through_with_a_figure_that_is_none_of_a_gpu(values: dict[str, float]) -> None:
    found = check_telemetry(pb.Telemetry(members=[pb.MemberBeat(cell_id="c", signals=pb.Signals(**values))]))
    good = all(name in GPU_SIGNALS and 0 <= value <= 1.001 for name, value in values.items())
    assert (found is None) == good


def test_the_lists_of_heads_that_left_are_bounded() -> None:
    rosters = Rosters()
    for number in range(MAX_LEFT + 5):
        rosters.set("head", [cell(f"c{number}", "w")])
        rosters.leave("head")
    assert rosters.refusal("w", f"c{MAX_LEFT + 4}") is None
    assert rosters.refusal("w", "c0") is not None
    assert len(rosters._left) == MAX_LEFT
