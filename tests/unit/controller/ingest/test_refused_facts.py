"""What a Hello says badly of a known cell changes nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from structlog.testing import capture_logs

from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.sessions import Session
from headrace_controller.ingest.sites import Sites
from headrace_controller.inventory import CellFacts
from headrace_controller.inventory.known import FleetKnowledge
from headrace_controller.lifecycle import CellState
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.control.region import Region

SITES = "sites: {west: {networks: [10.2.0.0/16]}}\n"


def facts(cell: str, host: str = "10.2.0.1") -> pb.CellFacts:
    return pb.CellFacts(
        cell_id=cell,
        address=pb.Address(host=host, port=8000),
        engine_kind="vllm",
        models=[pb.ModelFacts(id="m", max_model_len=4096)],
        gpus=[pb.GpuFacts(uuid="GPU-1", name="H200", memory_mib=143771)],
        labels={"rack": "r1"},
        member_nodes=["n2"],
        health_path="/health",
    )


def hello(*cells: pb.CellFacts, node: str = "n1", incarnation: int = 1) -> pb.Hello:
    return pb.Hello(node=node, site="west", incarnation=incarnation, cells=cells)


class Desk:
    """An intake before a whole control loop."""

    def __init__(self) -> None:
        self.region = Region(SITES)
        self.loop = self.region.loop
        self.rejected: list[str] = []
        self.intake = Intake(
            self.loop,
            pb.Welcome,
            on_rejection=self.rejected.append,
            sites=Sites(self.region.settings.sites),
            known=FleetKnowledge(self.loop.fleet),
        )

    def open(self, first: pb.Hello) -> tuple[Session, pb.Welcome]:
        session = self.intake.open(first, local=False)
        assert isinstance(session, Session)
        return session, self.intake.greet(session, first, self.region.clock.now()).welcome

    def say(self, session: Session, later: pb.Hello) -> pb.Welcome:
        answer = self.intake.take(session, pb.AgentMessage(hello=later), self.region.clock.now())
        assert answer is not None
        return answer.welcome

    def beat(self, session: Session, seq: int, *cells: str) -> None:
        beats = [
            pb.CellBeat(cell_id=cell, engine_state=pb.ENGINE_STATE_SERVING, serving_ms=600_000)
            for cell in cells
        ]
        message = pb.AgentMessage(telemetry=pb.Telemetry(seq=seq, cells=beats))
        self.intake.take(session, message, self.region.clock.now())
        self.region.tick()

    def state(self, cell: str) -> CellState:
        return CellState(self.loop.fleet.state[self.loop.fleet.row(cell)])

    def facts(self, cell: str) -> CellFacts:
        return self.loop.fleet.facts_of(self.loop.fleet.row(cell))


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.region.close()


def ready(desk: Desk, *cells: str) -> Session:
    session, _ = desk.open(hello(*map(facts, cells)))
    for seq in range(1, 20):
        desk.beat(session, seq, *cells)
    assert {desk.state(cell) for cell in cells} == {CellState.READY}
    return session


def at_a_foreign_address(cell: pb.CellFacts) -> None:
    cell.address.host = "203.0.113.9"


def with_a_bad_path(cell: pb.CellFacts) -> None:
    cell.health_path = "no path"


def with_too_many_labels(cell: pb.CellFacts) -> None:
    cell.labels.update({f"l{number}": "" for number in range(65)})


def without_a_port(cell: pb.CellFacts) -> None:
    cell.address.port = 0


BAD = [
    (at_a_foreign_address, "foreign_address"),
    (with_a_bad_path, "bad_path"),
    (with_too_many_labels, "too_long"),
    (without_a_port, "bad_address"),
]


@pytest.mark.parametrize(("spoil", "reason"), BAD)
def test_a_bad_fact_leaves_a_ready_cell_as_it_is(
    desk: Desk, spoil: Callable[[pb.CellFacts], None], reason: str
) -> None:
    session = ready(desk, "c1", "c2")
    before = desk.facts("c1")
    bad = facts("c1")
    bad.models[0].id = "other"
    spoil(bad)
    with capture_logs() as logs:
        for _ in range(2):
            welcome = desk.say(session, hello(bad, facts("c2")))
            assert [each.cell_id for each in welcome.refused] == ["c1"]
    assert [line["reason"] for line in logs if line["event"] == "cell refused"] == [reason]
    assert desk.rejected == [reason, reason]
    desk.beat(session, 20, "c1", "c2")
    assert desk.rejected == [reason, reason], "the cell is spoken for as before"
    assert desk.state("c1") is desk.state("c2") is CellState.READY
    assert desk.facts("c1") == before
    assert not desk.loop.fleet.is_withdrawn("c1")
    assert desk.loop.fleet.pools().models == ("m",)


def test_a_cell_that_the_hello_does_not_name_is_withdrawn_all_the_same(desk: Desk) -> None:
    session = ready(desk, "c1", "c2")
    bad = facts("c1")
    with_a_bad_path(bad)
    desk.say(session, hello(bad))
    assert not desk.loop.fleet.is_withdrawn("c1")
    assert desk.loop.fleet.is_withdrawn("c2")
    desk.say(session, hello())
    assert desk.loop.fleet.is_withdrawn("c1"), "what was kept is withdrawn like any other"
    welcome = desk.say(session, hello(bad))
    assert [each.cell_id for each in welcome.refused] == ["c1"]
    assert desk.loop.fleet.is_withdrawn("c1"), "what was withdrawn does not come back by bad facts"


def test_an_agent_that_restarts_with_a_bad_fact_keeps_its_cell(desk: Desk) -> None:
    session = ready(desk, "c1")
    desk.intake.close(session, desk.region.clock.now())
    bad = facts("c1")
    at_a_foreign_address(bad)
    again, welcome = desk.open(hello(bad, incarnation=2))
    assert [each.cell_id for each in welcome.refused] == ["c1"]
    assert again.cells == {"c1"}
    assert desk.facts("c1").host == "10.2.0.1"
    assert not desk.loop.fleet.is_withdrawn("c1")


def test_mended_facts_replace_those_that_were_kept(desk: Desk) -> None:
    session = ready(desk, "c1")
    bad = facts("c1")
    at_a_foreign_address(bad)
    desk.say(session, hello(bad))
    assert not desk.say(session, hello(facts("c1", "10.2.0.9"))).refused
    assert desk.facts("c1").host == "10.2.0.9"
    assert session.kept == {}


def test_nothing_is_kept_of_a_cell_that_another_node_holds(desk: Desk) -> None:
    session = ready(desk, "c1")
    desk.intake.close(session, desk.region.clock.now())
    desk.open(hello(facts("c1", "10.2.0.7"), node="heir"))
    bad = facts("c1")
    with_a_bad_path(bad)
    old, _ = desk.open(hello(bad))
    assert old.cells == frozenset()
    assert (desk.facts("c1").node, desk.facts("c1").host) == ("heir", "10.2.0.7")
