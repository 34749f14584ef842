"""Who speaks for which cell: additions, takeovers, refusals, withdrawals, pools, rows."""

from __future__ import annotations

import numpy as np
import pytest

from headrace_controller.inventory import (
    CellAdded,
    CellChanged,
    CellRefused,
    CellReturned,
    CellTakenOver,
    CellWithdrawn,
    Fleet,
    view_cell,
    view_cells,
    view_nodes,
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


def test_a_cell_of_a_live_node_is_refused_to_another_and_given_once_it_is_silent() -> None:
    fleet = fleet_of("a", now=0.0)
    (refused,) = fleet.register("thief", "s", hello("a"), 0.2)
    assert isinstance(refused, CellRefused)
    assert "n-a" in refused.reason
    assert fleet.node_cells("thief") == ()
    assert fleet.apply("thief", telemetry(beat("a")), 0.3) == ["a"]
    assert fleet.register("heir", "s", hello("a"), 5.0)[0] == CellTakenOver("a", "n-a")
    assert fleet.node_cells("heir") == ("a",)
    assert fleet.apply("n-a", telemetry(beat("a")), 5.1) == ["a"]


def test_a_cell_named_twice_is_refused_once() -> None:
    changes = Fleet(["g"]).register("n", "s", hello("a", "a"), 0.0)
    assert changes[0] == CellAdded("a")
    assert isinstance(changes[1], CellRefused)


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


def test_a_pool_stays_known_until_all_cells_that_served_it_are_forgotten() -> None:
    fleet = fleet_of("a", "b")
    for cell in ("a", "b"):
        fleet.register(f"n-{cell}", "s", hello(facts(cell, models=("new",))), 1.0)
    assert fleet.pools().models == ("m", "new")
    fleet.remove("a")
    assert fleet.pools().models == ("m", "new")
    fleet.remove("b")
    assert fleet.pools().models == ()
    assert fleet.nodes_heard() == frozenset()


def test_pools_are_rebuilt_only_when_models_change() -> None:
    fleet = fleet_of("a")
    before = fleet.pools()
    fleet.apply("n-a", telemetry(beat("a")), 1.0)
    assert fleet.pools() is before
    fleet.register("n-b", "s", hello("b"), 1.0)
    assert fleet.pools().version > before.version


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
    assert fleet.signals_for(1).shape == (200, 10)


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
    assert [node.name for node in view_nodes(fleet, 3.0)] == ["n-a", "n-b"]
