"""What operators ask of the weights is done, and nothing more."""

from __future__ import annotations

from headrace_controller.lifecycle import CellState
from headrace_controller.projection import Intents, Projected
from tests.unit.controller.inventory.builders import beat, facts, hello, telemetry
from tests.unit.controller.projection.test_projector import Stage, cells_of


class Sites(Stage):
    """A stage whose cells stand at the sites that their names begin with, under some intents."""

    intents = Intents()

    def add(
        self, cell: str, port: int, models: tuple[str, ...] = ("m",), state: CellState = CellState.READY
    ) -> None:
        site = cell.split("-", maxsplit=1)[0]
        self.fleet.register(f"n-{cell}", site, hello(facts(cell, models, port)), self.now)
        self.set(cell, state)

    def ask(self, seconds: float = 1.0, **loads: float) -> Projected:
        self.now += seconds
        for cell in self.fleet.cell_ids():
            load = loads.get(cell.replace("-", "_"), 0.1)
            signals = {"queue_depth": 32 * load, "kv_fill": load, "compute_active": load}
            self.fleet.apply(f"n-{cell}", telemetry(beat(cell, signals=signals)), self.now)
        pressures = self.model.tick(self.fleet, self.now)
        found = self.projector.tick(self.fleet, pressures, self.now, intents=self.intents)
        self.pushed = found.plan or self.pushed
        return found

    def told(self, model: str = "m") -> dict[str, int]:
        return {each.cell_id: each.weight for each in self.pushed.pools[model]["g"]}


def test_a_change_of_intents_is_pushed_at_once_and_only_once() -> None:
    stage = Sites("a-1", "b-1")
    stage.ask()
    stage.intents = Intents(overrides={"a-1": 50})
    assert [stage.ask(0.05).reason for _ in range(3)] == ["intents", "", ""]


def test_an_override_is_that_weight_exactly_whatever_the_factor_and_the_deadband() -> None:
    stage = Sites("a-1", "b-1")
    stage.ask()
    for weight, told in ((3, 3), (99, 99), (1, 1), (10**6, 100), (-5, 1)):
        stage.intents = Intents(overrides={"b-1": weight, "unknown": 7})
        stage.ask(0.05)
        assert stage.told() == {"a-1": 100, "b-1": told}
    assert stage.ask(5.0, b_1=0.99).weights.tolist() == [[100, 1]] * 2


def test_an_override_outlasts_a_lost_telemetry_but_not_a_failure() -> None:
    stage = Sites("a-1", "b-1")
    stage.intents = Intents(overrides={"b-1": 7})
    stage.ask()
    stage.fleet.telemetry_lost[stage.fleet.row("b-1")] = True
    stage.ask()
    assert stage.told()["b-1"] == 7
    stage.set("b-1", CellState.FAILED)
    stage.ask()
    assert stage.told() == {"a-1": 100}


def test_a_cleared_override_gives_the_weight_back_by_the_factor() -> None:
    stage = Sites("a-1", "b-1")
    stage.intents = Intents(overrides={"b-1": 10})
    stage.ask()
    stage.intents = Intents()
    weights = []
    for _ in range(5):
        stage.ask(1.1)
        weights.append(stage.told()["b-1"])
    assert weights == [20, 40, 80, 100, 100]


def test_a_cordoned_site_gets_no_requests_unless_it_is_the_last() -> None:
    stage = Sites("a-1", "b-1", "b-2")
    stage.intents = Intents(cordoned_sites=frozenset({"b"}))
    stage.ask()
    assert list(stage.told()) == ["a-1"]
    stage.set("a-1", CellState.FAILED)
    assert stage.ask(0.05).reason == "membership"
    assert list(stage.told()) == ["b-1", "b-2"]
    stage.set("a-1", CellState.READY)
    stage.ask(0.05)
    assert list(stage.told()) == ["a-1"]
    stage.intents = Intents()
    stage.ask(0.05)
    assert list(stage.told()) == ["a-1", "b-1", "b-2"]


def test_a_cordon_empties_no_pool_of_several() -> None:
    stage = Sites("a-1", "b-1")
    stage.add("b-2", 9000, ("x",))
    stage.intents = Intents(cordoned_sites=frozenset({"b"}))
    plan = stage.ask().plan
    assert cells_of(plan) == ["a-1"]
    assert cells_of(plan, "x") == ["b-2"]


def test_a_pin_is_law_even_where_it_empties_a_pool() -> None:
    stage = Sites("a-1", "b-1")
    stage.intents = Intents(pins={"m": frozenset({"b"}), "unknown": frozenset()})
    stage.ask()
    assert list(stage.told()) == ["b-1"]
    stage.set("b-1", CellState.FAILED)
    stage.ask(0.05)
    assert stage.told() == {}


def test_a_cordon_does_not_break_a_pin() -> None:
    stage = Sites("a-1", "b-1")
    stage.intents = Intents(pins={"m": frozenset({"b"})}, cordoned_sites=frozenset({"b"}))
    stage.ask()
    assert list(stage.told()) == ["b-1"]


def test_a_cell_that_moves_to_another_site_is_judged_by_it() -> None:
    stage = Sites("a-1", "b-1")
    stage.intents = Intents(pins={"m": frozenset({"a"})})
    stage.ask()
    stage.fleet.register("n-b-1", "a", hello(facts("b-1", ("m",), 8001)), stage.now)
    stage.ask()
    assert list(stage.told()) == ["a-1", "b-1"]


def test_frozen_weights_stand_while_members_come_and_go() -> None:
    stage = Sites("a-1", "b-1", "c-1")
    stage.ask(b_1=0.3)
    before = stage.told()
    stage.intents = Intents(frozen=True)
    assert stage.ask(2.0, a_1=0.9).weights[0].tolist() == list(before.values())
    stage.set("c-1", CellState.FAILED)
    stage.ask(0.05, a_1=0.9)
    assert stage.told() == {"a-1": before["a-1"], "b-1": before["b-1"]}
    stage.add("d-1", 9000)
    stage.ask(0.05, a_1=0.9)
    joined = stage.told()["d-1"]
    assert min(before["a-1"], before["b-1"]) <= joined <= max(before["a-1"], before["b-1"])
    assert {cell: stage.told()[cell] for cell in ("a-1", "b-1")} == {
        cell: before[cell] for cell in ("a-1", "b-1")
    }


def test_shadow_moves_no_weight_and_shows_what_it_would_do() -> None:
    stage = Sites("a-1", "b-1")
    stage.intents = Intents(shadow=True)
    assert stage.ask(a_1=0.8).weights.tolist() == [[100, 100]] * 2
    seen = [stage.ask(1.1, a_1=0.8) for _ in range(12)]
    assert {each.reason for each in seen} == {""}
    assert [each.weights.tolist() for each in seen] == [[[100, 100]] * 2] * 12
    assert seen[-1].target[0].tolist() == seen[-1].verdict.weights[0].tolist() != [100, 100]


def test_after_shadow_the_weights_walk_from_where_they_stood() -> None:
    stage = Sites("a-1", "b-1")
    stage.intents = Intents(shadow=True)
    for _ in range(10):
        stage.ask(1.1, a_1=0.9)
    stage.intents = Intents()
    stage.ask(1.1, a_1=0.9)
    assert stage.told() == {"a-1": 50, "b-1": 100}


def test_overrides_cordons_and_pins_are_obeyed_in_shadow() -> None:
    stage = Sites("a-1", "b-1", "c-1")
    stage.ask()
    stage.intents = Intents(
        shadow=True,
        overrides={"a-1": 30},
        cordoned_sites=frozenset({"b"}),
        pins={"m": frozenset({"a", "b"})},
    )
    stage.ask()
    assert stage.told() == {"a-1": 30}
