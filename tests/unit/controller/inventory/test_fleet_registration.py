"""Who speaks for which cell: additions, takeovers, withdrawals, pools, rows."""

from __future__ import annotations

import numpy as np
import pytest

from headrace_controller.inventory import (
    CellAdded,
    CellChanged,
    CellReturned,
    CellTakenOver,
    CellWithdrawn,
    Fleet,
    view_cell,
    view_cells,
)
from tests.unit.controller.inventory.builders import SERVING, beat, facts, fleet_of, hello, telemetry


def test_a_first_hello_adds_its_cells() -> None:
    fleet = Fleet(["g"])
    assert fleet.register("n", "s", hello("a", "b"), 5.0) == [CellAdded("a"), CellAdded("b")]
    assert fleet.node_cells("n") == ("a", "b")
    assert fleet.last_heard[fleet.row("a")] == 5.0
    assert fleet.facts_of(fleet.row("b")).site == "s"


def test_the_same_hello_again_changes_nothing() -> None:
    fleet = fleet_of("a")
    assert fleet.register("n-a", "s", hello("a"), 1.0) == []


def test_a_restarted_agent_takes_its_cells_over_and_its_engine_word_starts_anew() -> None:
    fleet = fleet_of("a")
    fleet.apply("n-a", telemetry(beat("a")), 1.0)
    assert fleet.engine_state[0] == SERVING
    assert fleet.register("n-a", "s", hello("a", incarnation=2), 1.1) == [CellReturned("a", restarted=True)]
    assert fleet.engine_state[0] == 0


def test_a_cell_goes_at_once_to_the_node_that_ingest_lets_name_it() -> None:
    """Ingest alone judges who holds a cell; a fleet that judged too would deafen itself to the heir."""
    fleet = fleet_of("a", now=0.0)
    assert fleet.register("heir", "s", hello("a"), 0.2) == [CellTakenOver("a", "n-a")]
    assert fleet.node_cells("heir") == ("a",)
    assert fleet.apply("heir", telemetry(beat("a")), 0.3) == []
    assert fleet.engine_state[0] == SERVING
    assert fleet.apply("n-a", telemetry(beat("a")), 0.4) == ["a"]


def test_a_cell_named_twice_is_taken_once() -> None:
    fleet = Fleet(["g"])
    assert fleet.register("n", "s", hello("a", "a"), 0.0) == [CellAdded("a")]
    assert fleet.node_cells("n") == ("a",)


def test_a_withdrawn_cell_is_not_heard_any_more_and_may_return() -> None:
    fleet = Fleet(["g"])
    fleet.register("n", "s", hello("a", "b"), 0.0)
    assert fleet.register("n", "s", hello("a"), 1.0) == [CellWithdrawn("b")]
    fleet.touch("n", 2.0)
    assert fleet.last_heard[fleet.row("a")] == 2.0
    assert fleet.last_heard[fleet.row("b")] == 0.0
    assert fleet.apply("n", telemetry(beat("b")), 2.0) == ["b"]
    assert fleet.register("n", "s", hello("a", "b"), 3.0) == [CellReturned("b", restarted=False)]
    assert fleet.apply("n", telemetry(beat("b")), 3.0) == []


def test_a_withdrawn_cell_may_go_to_another_node_at_once() -> None:
    fleet = Fleet(["g"])
    fleet.register("n", "s", hello("a", "b"), 0.0)
    fleet.register("n", "s", hello("a"), 0.1)
    assert fleet.register("o", "s", hello("b"), 0.2)[0] == CellTakenOver("b", "n")


def test_a_new_address_or_model_is_a_change() -> None:
    fleet = fleet_of("a")
    assert fleet.register("n-a", "s", hello(facts("a", port=9000)), 1.0) == [CellChanged("a")]
    assert fleet.register("n-a", "s", hello(facts("a", models=("x",), port=9000)), 2.0) == [CellChanged("a")]


def test_an_engine_that_names_no_model_keeps_those_it_named() -> None:
    """A restarting engine must not turn its pool into an unknown model."""
    fleet = fleet_of("a")
    assert fleet.register("n-a", "s", hello(facts("a", models=())), 1.0) == []
    assert fleet.facts_of(0).model_ids == ("m",)


def name(fleet: Fleet, cell: str, now: float, *models: str) -> None:
    """The cell's node says which models it serves."""
    fleet.register(f"n-{cell}", "s", hello(facts(cell, models=models)), now)
    fleet.forget_pools(now)


def test_a_pool_stays_known_for_the_retention_after_the_last_cell_that_named_it() -> None:
    fleet = Fleet(["g"], retention_s=60.0)
    name(fleet, "a", 0.0, "old")
    name(fleet, "b", 0.0, "old")
    name(fleet, "a", 100.0, "new")
    name(fleet, "a", 200.0, "new")
    assert fleet.pools().models == ("new", "old")
    name(fleet, "b", 210.0, "new")
    name(fleet, "b", 269.0, "new")
    assert fleet.pools().models == ("new", "old")
    name(fleet, "b", 270.0, "new")
    assert fleet.pools().models == ("new",)


def test_adapters_that_come_and_go_leave_no_pools_behind() -> None:
    fleet = Fleet(["g"], retention_s=60.0)
    for number in range(500):
        name(fleet, "a", float(number), "base", f"lora-{number}")
        assert len(fleet.pools().models) <= 62
    assert fleet.pools().index.keys() >= {"base", "lora-499"}


def test_a_pool_that_is_named_again_is_the_same_pool_and_its_time_starts_over() -> None:
    fleet = Fleet(["g"], retention_s=60.0)
    name(fleet, "a", 0.0, "x", "y")
    number = dict(zip(fleet.pools().models, fleet.pools().ids.tolist(), strict=True))["x"]
    name(fleet, "a", 50.0, "y")
    name(fleet, "a", 100.0, "x", "y")
    name(fleet, "a", 150.0, "y")
    name(fleet, "a", 209.0, "y")
    pools = fleet.pools()
    assert dict(zip(pools.models, pools.ids.tolist(), strict=True))["x"] == number


def test_a_forgotten_cells_pool_goes_with_it_when_nobody_else_names_it() -> None:
    fleet = Fleet(["g"], retention_s=60.0)
    name(fleet, "a", 0.0, "m", "rare")
    name(fleet, "b", 0.0, "m")
    fleet.remove("a")
    fleet.forget_pools(60.0)
    assert fleet.pools().models == ("m",)
    assert fleet.nodes.keys() == {"n-b"}


def test_pools_are_rebuilt_only_when_models_change() -> None:
    fleet = fleet_of("a")
    before = fleet.pools()
    fleet.apply("n-a", telemetry(beat("a")), 1.0)
    assert fleet.pools() is before
    fleet.register("n-b", "s", hello("b"), 1.0)
    assert fleet.pools() is not before
    assert len(fleet.pools().row) == 2


def test_a_reused_row_is_blank_and_has_another_generation() -> None:
    fleet = fleet_of("a", "b")
    fleet.apply("n-a", telemetry(beat("a", totals={"ok": 5})), 1.0)
    generation = int(fleet.generation[0])
    fleet.remove("a")
    assert fleet.rows().tolist() == [1]
    fleet.register("n-c", "s", hello("c"), 2.0)
    assert fleet.row("c") == 0
    assert fleet.generation[0] != generation
    assert np.isnan(fleet.signals[0]).all()
    assert np.isnan(fleet.totals[0]).all()


def test_growth_keeps_what_was_there() -> None:
    fleet = Fleet(["g", "h"])
    names = [f"c{number:03d}" for number in range(100)]
    fleet.register("n", "s", hello(*names), 0.0)
    fleet.apply(
        "n", telemetry(*(beat(name, signals={"queue_depth": i}) for i, name in enumerate(names))), 1.0
    )
    fleet.register("o", "s", hello(*(f"d{number}" for number in range(100))), 2.0)
    assert fleet.size == 200
    assert [fleet.signals[fleet.row(name), 0] for name in names] == list(range(100))
    assert fleet.rtt_ms[: fleet.size].shape == (200, 2)


def test_removal_of_an_unknown_cell_is_no_error_and_lookup_is() -> None:
    fleet = fleet_of("a")
    fleet.remove("zzz")
    assert fleet.get("zzz") is None
    assert "a" in fleet
    assert len(fleet) == 1
    with pytest.raises(KeyError):
        fleet.row("zzz")


def test_views_are_plain_and_detached() -> None:
    fleet = fleet_of("b", "a")
    fleet.apply("n-a", telemetry(beat("a", in_flight=3)), 1.0)
    assert [view.facts.cell_id for view in view_cells(fleet, 2.0)] == ["a", "b"]
    seen = view_cell(fleet, "a", 2.0)
    fleet.apply("n-a", telemetry(beat("a", in_flight=9)), 3.0)
    assert seen.in_flight == 3
    assert seen.telemetry_age_s == 1.0
    assert "ttft_p95_s" not in seen.signals
    assert view_cell(fleet, "b", 2.0).telemetry_age_s is None
