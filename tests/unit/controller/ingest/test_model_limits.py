"""However many models a Hello names, nodes and the fleet get as many as they may have."""

from __future__ import annotations

from collections.abc import Iterable

from structlog.testing import capture_logs

from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.models import MAX_NODE_MODELS, leave_models
from headrace_controller.ingest.sessions import Session
from headrace_controller.ingest.validation import MAX_MODELS
from headrace_controller.inventory import Fleet
from headrace_controller.inventory.known import FleetKnowledge
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.control.region import Region


def hello(node: str, *cells: Iterable[str]) -> pb.Hello:
    made = pb.Hello(node=node, site="s", incarnation=1)
    for number, models in enumerate(cells):
        cell = made.cells.add(cell_id=f"{node}-c{number}", address=pb.Address(host="10.0.0.1", port=8000))
        cell.models.extend(pb.ModelFacts(id=model) for model in models)
    return made


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def models_in(said: pb.Hello) -> list[set[str]]:
    return [{model.id for model in cell.models} for cell in said.cells]


def take(fleet: Fleet, said: pb.Hello, max_pools: int) -> dict[str, str]:
    why = leave_models(said, FleetKnowledge(fleet, max_pools))
    fleet.register(said.node, said.site, said, 0.0)
    return {cell_id: each.reason for cell_id, each in why.items()}


def test_a_node_gets_the_models_that_it_may_name_and_keeps_those_it_serves() -> None:
    fleet = Fleet(["g"])
    assert take(fleet, hello("n", ["served"]), 9999) == {}
    flood = [names(f"x{cell}-", MAX_MODELS) for cell in range(3)]
    said = hello("n", *flood, ["served"])
    # Cell 0 said "served" before; now it is the last one that does.
    assert take(fleet, said, 9999) == {"n-c1": "too_many_models"}, "a flood is told of once"
    assert len(set().union(*models_in(said))) == MAX_NODE_MODELS
    assert models_in(said)[0] == set(flood[0])
    assert models_in(said)[3] == {"served"}


def test_a_model_of_many_cells_counts_once() -> None:
    fleet = Fleet(["g"])
    shared = names("m", MAX_MODELS)
    assert take(fleet, hello("n", *[shared] * 8), MAX_MODELS) == {}
    assert len(fleet.pools().models) == MAX_MODELS


def test_a_full_fleet_takes_no_new_model_and_keeps_all_that_it_has() -> None:
    fleet = Fleet(["g"])
    assert take(fleet, hello("n1", names("a", 10)), 12) == {}
    second = hello("n2", [*names("b", 5), "a0"])
    assert take(fleet, second, 12) == {"n2-c0": "too_many_models"}
    assert models_in(second) == [{"b0", "b1", "a0"}], "what others serve already needs no room"
    assert take(fleet, hello("n1", names("a", 10)), 12) == {}
    assert len(fleet.pools().models) == 12


def test_room_is_free_again_when_a_model_is_forgotten() -> None:
    fleet = Fleet(["g"], retention_s=600.0)
    take(fleet, hello("n1", names("a", 10)), 10)
    assert take(fleet, hello("n1", ["b"]), 10) == {"n1-c0": "too_many_models"}
    fleet.register("n1", "s", hello("n1", ["a0"]), 0.0)
    assert take(fleet, hello("n1", ["a0", "b"]), 10) == {"n1-c0": "too_many_models"}, "within the retention"
    fleet.forget_pools(700.0)
    assert take(fleet, hello("n1", ["a0", "b"]), 10) == {}


def test_a_flood_of_models_is_counted_and_logged_once_and_takes_no_cell_away() -> None:
    region = Region()
    rejected: list[str] = []
    known = FleetKnowledge(region.loop.fleet)
    intake = Intake(region.loop, pb.Welcome, on_rejection=rejected.append, known=known)
    cells = [names(f"x{cell}-", MAX_MODELS) for cell in range(3)]
    flood = hello("n", *cells)
    session = intake.open(flood, local=False)
    assert isinstance(session, Session)
    with capture_logs() as logs:
        assert not intake.greet(session, flood, 0.0).welcome.refused
        intake.take(session, pb.AgentMessage(hello=flood), 0.0)
    said = [(line["event"], line["cell"]) for line in logs if line.get("reason") == "too_many_models"]
    assert said == [("model refused", "n-c2")]
    assert rejected == ["too_many_models"] * 2
    assert session.cells == {"n-c0", "n-c1", "n-c2"}
    assert len(region.loop.fleet.pools().models) == MAX_NODE_MODELS
    region.close()
