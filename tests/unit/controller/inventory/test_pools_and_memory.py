"""Medians over pools against the plain definition, and arrays that follow the fleet."""

from __future__ import annotations

import math
import statistics

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.inventory import Pools, RowMemory
from headrace_controller.inventory.pools import Memberships, build_pools
from tests.unit.controller.inventory.builders import fleet_of, hello

VALUE = st.one_of(st.just(math.nan), st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0]))
MEMBERS = st.lists(st.tuples(st.integers(0, 3), VALUE, st.booleans()), max_size=24)


def pools_of(members: list[tuple[int, float, bool]]) -> tuple[Pools, np.ndarray, np.ndarray]:
    cells = [(f"c{number:02d}", number, (f"m{pool}",)) for number, (pool, _, _) in enumerate(members)]
    pools = build_pools({f"m{pool}": pool + 1 for pool in range(4)}, cells)
    values = np.array([value for _, value, _ in members])
    counted = np.array([counts for _, _, counts in members], dtype=bool)
    return pools, values[pools.row], counted[pools.row]


@given(MEMBERS)
def test_medians_are_those_of_each_pools_counted_values(members: list[tuple[int, float, bool]]) -> None:
    pools, values, counted = pools_of(members)
    medians = pools.medians(values, counted)
    for pool in range(4):
        own = [v for of, v, counts in members if of == pool and counts and not math.isnan(v)]
        expected = statistics.median(own) if own else math.nan
        np.testing.assert_allclose(medians[pool], expected)


@given(MEMBERS)
def test_medians_of_others_leave_out_the_cell_itself(members: list[tuple[int, float, bool]]) -> None:
    pools, values, counted = pools_of(members)
    found = dict(zip(pools.row.tolist(), pools.medians_of_others(values, counted).tolist(), strict=True))
    for row, (pool, _, _) in enumerate(members):
        others = [
            v
            for number, (of, v, counts) in enumerate(members)
            if of == pool and counts and number != row and not math.isnan(v)
        ]
        np.testing.assert_allclose(found[row], statistics.median(others) if others else math.nan)


def test_an_empty_fleet_has_no_pools() -> None:
    pools = build_pools({}, [])
    nothing = np.zeros(0)
    assert pools.medians(nothing, nothing.astype(bool)).tolist() == []
    assert pools.medians_of_others(nothing, nothing.astype(bool)).tolist() == []


def test_memory_follows_rows_and_blanks_those_of_another_cell() -> None:
    fleet = fleet_of("a", "b")
    memory = RowMemory({"x": np.nan, "y": 0.0}, width=2)
    memory.follow(fleet)
    memory["x"][:] = 7.0
    fleet.remove("a")
    fleet.register("n-c", "s", hello("c", "d"), 1.0)
    memory.follow(fleet)
    assert memory["x"].shape == (3, 2)
    assert np.isnan(memory["x"][fleet.row("c")]).all()
    assert np.isnan(memory["x"][fleet.row("d")]).all()
    assert memory["x"][fleet.row("b")].tolist() == [7.0, 7.0]


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sets(st.sampled_from(("m", "n", "o")))), max_size=30))
def test_memberships_are_those_of_a_plain_sort_however_cells_come_and_go(
    steps: list[tuple[str, set[str]]],
) -> None:
    """A cell that serves nothing any more is gone."""
    memberships, serves = Memberships(), dict[str, set[str]]()
    seen = {"m": 7, "n": 3, "o": 9}
    for cell_id, models in steps:
        memberships.remove(cell_id, serves.get(cell_id, set()))
        memberships.add(cell_id, ord(cell_id), models)
        serves[cell_id] = models
        found = memberships.pools(seen)
        expected = sorted((model, cell, ord(cell)) for cell, own in serves.items() for model in own)
        told = zip(found.pool.tolist(), found.row.tolist(), strict=True)
        assert [(found.models[pool], chr(row), row) for pool, row in told] == expected
        assert (found.models, found.ids.tolist()) == (("m", "n", "o"), [7, 3, 9])
