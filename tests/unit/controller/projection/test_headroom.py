"""Weights from pressures: bounds, order, monotony, ramps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.projection import headroom, ramps
from headrace_controller.settings import ProjectionSettings

UNIT = st.floats(0, 1)
POOL = st.lists(st.tuples(UNIT, UNIT), min_size=1, max_size=12)


def weigh(
    pressures: list[float], ramp: list[float] | None = None, pool: list[int] | None = None, **fields: Any
) -> list[int]:
    count = len(pressures)
    owner = np.array(pool if pool else [0] * count)
    found = headroom(
        np.array([pressures]),
        np.array(ramp if ramp else [1.0] * count),
        owner,
        int(owner.max()) + 1,
        ProjectionSettings(**fields),
    )
    return found[0].tolist()


@given(POOL, st.integers(1, 10_000), st.floats(0.1, 20))
def test_weights_are_integers_from_1_to_the_most_and_somebody_has_the_most(
    cells: list[tuple[float, float]], most: int, sharpness: float
) -> None:
    weights = weigh([p for p, _ in cells], [r for _, r in cells], max_weight=most, sharpness=sharpness)
    assert all(isinstance(weight, int) and 1 <= weight <= most for weight in weights)
    assert max(weights) == most


@given(POOL, st.integers(0, 11), UNIT)
def test_more_pressure_never_earns_more_weight(
    cells: list[tuple[float, float]], which: int, more: float
) -> None:
    which %= len(cells)
    pressures, ramp = [p for p, _ in cells], [r for _, r in cells]
    worse = pressures.copy()
    worse[which] = max(worse[which], more)
    assert weigh(worse, ramp)[which] <= weigh(pressures, ramp)[which]


@given(POOL, st.randoms())
def test_the_order_of_cells_does_not_matter(cells: list[tuple[float, float]], random: Any) -> None:
    shuffled = list(range(len(cells)))
    random.shuffle(shuffled)
    straight = weigh([p for p, _ in cells], [r for _, r in cells])
    mixed = weigh([cells[i][0] for i in shuffled], [cells[i][1] for i in shuffled])
    assert mixed == [straight[i] for i in shuffled]


@given(UNIT, st.integers(1, 9))
def test_equal_cells_get_equal_weights(pressure: float, count: int) -> None:
    assert weigh([pressure] * count) == [100] * count


@pytest.mark.parametrize(
    ("pressures", "sharpness", "expected"),
    [
        ([0.0, 0.5], 1.0, [100, 50]),
        ([0.0, 0.5], 3.0, [100, 12]),
        ([0.2, 0.2, 1.0], 3.0, [100, 100, 1]),
        ([1.0, 1.0], 3.0, [100, 100]),
        ([0.9, 0.95], 1.0, [100, 50]),
    ],
)
def test_weights_are_sharpened_relative_headroom(
    pressures: list[float], sharpness: float, expected: list[int]
) -> None:
    assert weigh(pressures, sharpness=sharpness) == expected


def test_each_pool_has_its_own_best() -> None:
    assert weigh([0.0, 0.5, 0.5, 0.75], pool=[0, 0, 1, 1], sharpness=1.0) == [100, 50, 100, 50]


def test_each_gateway_has_its_own_weights() -> None:
    pressures = np.array([[0.0, 0.5], [0.5, 0.0]])
    found = headroom(pressures, np.ones(2), np.zeros(2, dtype=np.int64), 1, ProjectionSettings(sharpness=1.0))
    assert found.tolist() == [[100, 50], [50, 100]]


def test_a_ramping_cell_rises_and_a_pool_that_ramps_as_a_whole_keeps_its_shares() -> None:
    assert weigh([0.2, 0.2], ramp=[1.0, 0.25]) == [100, 25]
    assert weigh([0.2, 0.2], ramp=[0.1, 0.1]) == [100, 100]
    assert weigh([0.2, 0.2], ramp=[0.0, 0.0]) == [100, 100]
    assert weigh([0.2, 0.2], ramp=[1.0, 0.0]) == [100, 1]


def test_ramps_run_from_their_start_over_their_time() -> None:
    since = np.array([100.0, 95.0, 90.0, -1e9])
    assert ramps(since, 100.0, 10.0).tolist() == [0.0, 0.5, 1.0, 1.0]
    assert ramps(since, 100.0, 0.0).tolist() == [1.0] * 4


def test_nobody_is_no_error() -> None:
    nobody = np.zeros((2, 0))
    found = headroom(nobody, np.zeros(0), np.zeros(0, dtype=np.int64), 0, ProjectionSettings())
    assert found.shape == (2, 0)
