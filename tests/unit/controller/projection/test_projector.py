"""Plans: who stands in which pool for which gateway, and when a new one is made."""

from __future__ import annotations

from typing import Any

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure import PressureModel
from headrace_controller.projection import Endpoint, Endpoints, Plan, Projected, Projector, baseline_plan
from headrace_controller.settings import PressureSettings, ProjectionSettings
from tests.unit.controller.inventory.builders import ENOUGH, beat, facts, hello, telemetry

GATEWAYS = ("g", "h")


class Stage:
    """A fleet whose states are set by hand, scored and projected."""

    def __init__(self, *cells: str, models: tuple[str, ...] = ("m",), **projection: Any) -> None:
        self.fleet = Fleet(GATEWAYS)
        self.model = PressureModel(PressureSettings(smoothing_s=0.0), len(GATEWAYS), jump=0.3)
        self.projector = Projector(ProjectionSettings(**projection), GATEWAYS, ramp_s=10.0)
        self.now = 1000.0
        self.pushed = Plan()
        for number, cell in enumerate(cells):
            self.add(cell, 8000 + number, models)

    def add(
        self, cell: str, port: int, models: tuple[str, ...] = ("m",), state: CellState = CellState.READY
    ) -> None:
        self.fleet.register(f"n-{cell}", "s", hello(facts(cell, models, port)), self.now)
        self.set(cell, state)

    def set(self, cell: str, state: CellState) -> None:
        row = self.fleet.row(cell)
        self.fleet.state[row] = state
        self.fleet.ready_since[row] = 0.0 if state is CellState.READY else float("nan")

    def tick(self, seconds: float = 0.0, force: bool = False, silent: str = "", **loads: float) -> Projected:
        self.now += seconds
        for cell in (cell for cell in self.fleet.cell_ids() if cell not in silent):
            signals = dict(ENOUGH) if cell not in loads else dict.fromkeys(ENOUGH, loads[cell])
            if cell in loads:
                signals["queue_depth"] = 32.0 * loads[cell]
            self.fleet.apply(f"n-{cell}", telemetry(beat(cell, signals=signals)), self.now)
        found = self.projector.tick(self.fleet, self.model.tick(self.fleet, self.now), self.now, force)
        self.pushed = found.plan or self.pushed
        return found

    def weight_of(self, cell: str, model: str, gateway: str) -> int | None:
        """The weight pushed last."""
        told = {each.cell_id: each.weight for each in self.pushed.pools[model][gateway]}
        return told.get(cell)


def cells_of(plan: Plan | None, model: str = "m", gateway: str = "g") -> list[str]:
    assert plan is not None
    return [endpoint.cell_id for endpoint in plan.pools[model][gateway]]


def test_only_ready_cells_are_in_the_plan_sorted_by_id() -> None:
    stage = Stage("b", "a", "c", "d", "e")
    for cell, state in (("c", CellState.LOADING), ("d", CellState.DRAINING), ("e", CellState.FAILED)):
        stage.set(cell, state)
    plan = stage.tick().plan
    assert cells_of(plan) == cells_of(plan, gateway="h") == ["a", "b"]
    assert plan is not None
    assert plan.pools["m"]["g"][0] == Endpoint("a", "127.0.0.1", 8001, 100)


def test_a_fleet_in_equilibrium_pushes_once() -> None:
    stage = Stage("a", "b", "c")
    assert [stage.tick(0.05).reason for _ in range(200)] == ["pools", *[""] * 199]


def test_a_pool_without_a_ready_cell_stands_empty_for_every_gateway() -> None:
    stage = Stage("a")
    stage.tick()
    stage.set("a", CellState.FAILED)
    found = stage.tick(0.05)
    assert found.reason == "membership"
    assert found.plan == Plan({"m": {"g": Endpoints.of([]), "h": Endpoints.of([])}})


def test_a_new_pool_is_told_of_before_it_has_a_ready_cell() -> None:
    stage = Stage("a")
    stage.tick()
    stage.add("b", 9000, ("x",), CellState.LOADING)
    found = stage.tick(0.05)
    assert found.reason == "pools"
    assert cells_of(found.plan, "x") == []


def test_a_cell_with_two_models_has_a_weight_in_each_pool() -> None:
    stage = Stage("a", models=("base", "lora"))
    stage.add("b", 9000, ("base",))
    plan = stage.tick(a=0.8, b=0.1).plan
    assert cells_of(plan, "base") == ["a", "b"]
    assert cells_of(plan, "lora") == ["a"]
    assert stage.weight_of("a", "base", "g") == 7
    assert stage.weight_of("a", "lora", "g") == 100
    assert stage.weight_of("b", "lora", "g") is None


def test_a_cell_whose_telemetry_is_lost_keeps_its_weight() -> None:
    stage = Stage("a", "b")
    stage.tick(a=0.1, b=0.4)
    before = stage.weight_of("b", "m", "g")
    stage.fleet.telemetry_lost[stage.fleet.row("b")] = True
    found = stage.tick(2.0, force=True, a=0.1, b=0.9)
    assert found.reason == "lifecycle"
    assert stage.weight_of("b", "m", "g") == before


def test_a_fresh_cell_ramps_up_beside_one_that_serves() -> None:
    stage = Stage("a", "b")
    stage.fleet.ready_since[stage.fleet.row("b")] = stage.now
    weights = []
    for _ in range(13):
        stage.tick(1.0)
        weights.append(stage.weight_of("b", "m", "g"))
    assert weights[0] == 10
    assert weights == sorted(weights)
    assert weights[-1] == 100


def test_a_reused_row_inherits_no_weight() -> None:
    stage = Stage("a", "b")
    stage.tick(a=0.1, b=0.9)
    assert stage.weight_of("b", "m", "g") == 3
    stage.fleet.remove("b")
    stage.add("c", 9000)
    stage.tick(0.05, a=0.1, c=0.1)
    assert stage.weight_of("c", "m", "g") == 100


def test_weights_kept_from_before_a_restart_hold_for_held_cells() -> None:
    stage = Stage("a", "b")
    kept = {"a": {"m": {"g": 100, "h": 90}}, "b": {"m": {"g": 17, "h": 23}}, "gone": {"m": {"g": 5}}}
    stage.fleet.telemetry_lost[: stage.fleet.size] = True
    stage.projector.seed(stage.fleet, kept, stage.now)
    assert stage.tick(0.05).reason == "pools"
    told = [stage.weight_of(c, "m", g) for c in ("a", "b") for g in GATEWAYS]
    assert told == [100, 90, 17, 23]


def test_weights_kept_from_before_a_restart_stand_until_there_are_figures_or_patience_ends() -> None:
    stage = Stage("a", "b", "c", max_change=10000)
    kept = {"a": {"m": {"g": 100, "h": 100}}, "b": {"m": {"g": 1, "h": 1}}, "c": {"m": {"g": 50, "h": 50}}}
    stage.projector.seed(stage.fleet, kept, stage.now, patience_s=8.0)
    assert stage.tick(0.05, silent="abc").reason == "pools"
    assert [stage.weight_of(cell, "m", "g") for cell in "abc"] == [100, 1, 50]
    stage.tick(2.0, silent="bc", force=True)
    assert [stage.weight_of(cell, "m", "g") for cell in "abc"] == [100, 1, 50]
    stage.tick(2.0, silent="c", force=True)
    assert [stage.weight_of(cell, "m", "g") for cell in "abc"] == [100, 100, 50]
    stage.tick(4.0, silent="c", force=True)
    assert stage.weight_of("c", "m", "g") == 100


def test_a_cell_that_failed_and_returned_waits_for_nothing() -> None:
    stage = Stage("a", "b")
    kept = {"a": {"m": {"g": 100, "h": 100}}, "b": {"m": {"g": 1, "h": 1}}}
    stage.projector.seed(stage.fleet, kept, stage.now, patience_s=60.0)
    for state in (CellState.READY, CellState.FAILED, CellState.READY):
        stage.set("b", state)
        stage.tick(0.05, silent="ab")
    assert stage.weight_of("b", "m", "g") == 100


def test_kept_weights_out_of_bounds_are_brought_within() -> None:
    stage = Stage("a")
    stage.fleet.telemetry_lost[0] = True
    stage.projector.seed(stage.fleet, {"a": {"m": {"g": 0, "h": 10**9}}}, stage.now)
    stage.tick()
    assert [stage.weight_of("a", "m", g) for g in GATEWAYS] == [1, 100]


def test_the_baseline_holds_all_but_the_terminated_with_equal_weights() -> None:
    stage = Stage("a", "b", "c", "d")
    for cell, state in (("b", CellState.FAILED), ("c", CellState.LOADING), ("d", CellState.TERMINATED)):
        stage.set(cell, state)
    plan = baseline_plan(stage.fleet, GATEWAYS)
    assert cells_of(plan) == ["a", "b", "c"]
    assert {endpoint.weight for endpoint in plan.pools["m"]["h"]} == {1}


def test_an_empty_fleet_gives_an_empty_plan() -> None:
    assert baseline_plan(Fleet(GATEWAYS), GATEWAYS) == Plan()
    assert Stage().tick().plan == Plan()
