"""Ranges, normalisation and the weighted mean over what is present."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from headrace_controller.pressure import (
    SCORERS,
    count_present,
    fill,
    normalise,
    resolve_ranges,
    saturate,
    score,
)
from headrace_controller.settings import RangeSettings
from headrace_shared.signals import INDEX, SIGNALS
from tests.unit.controller.inventory.builders import fleet_of

RANGES = resolve_ranges({})
ANY = st.floats(allow_nan=True, allow_infinity=True)
UNIT = st.one_of(st.just(math.nan), st.floats(0, 1))


@given(arrays(np.float64, (5, 10), elements=ANY))
def test_normalised_values_lie_in_the_unit_interval_and_what_is_no_number_stays_absent(
    raw: np.ndarray,
) -> None:
    values = normalise(raw, RANGES.low, RANGES.high)
    known = np.isfinite(raw)
    assert np.isnan(values[~known]).all()
    assert ((values[known] >= 0) & (values[known] <= 1)).all()


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal.name)
def test_the_ends_of_a_range_are_0_and_1(signal: object) -> None:
    ends = normalise(
        np.stack((RANGES.low, RANGES.high, (RANGES.low + RANGES.high) / 2)), RANGES.low, RANGES.high
    )
    np.testing.assert_allclose(ends, np.array([[0.0], [1.0], [0.5]]) * np.ones(10))


def test_settings_override_single_figures() -> None:
    ranges = resolve_ranges({"queue_depth": RangeSettings(high=64), "rtt_ms": RangeSettings(weight=0)})
    assert (ranges.low[0], ranges.high[0], ranges.weight[0]) == (0.0, 64.0, 0.2)
    assert ranges.weight[INDEX["rtt_ms"]] == 0
    assert ranges.high[INDEX["rtt_ms"]] == 150.0


@given(arrays(np.float64, (6, 8), elements=UNIT), arrays(np.float64, (2, 6, 2), elements=UNIT))
def test_a_score_lies_between_the_least_and_the_greatest_signal_present(
    cell: np.ndarray, path: np.ndarray
) -> None:
    found = score(cell, path, SCORERS["v3"](RANGES))
    counted = count_present(cell, path, SCORERS["v3"](RANGES))
    for gateway in range(2):
        for row in range(6):
            signals = np.concatenate((cell[row], path[gateway, row]))
            present = signals[~np.isnan(signals)]
            assert counted[gateway, row] == len(present)
            if len(present):
                assert present.min() - 1e-9 <= found[gateway, row] <= present.max() + 1e-9
            else:
                assert math.isnan(found[gateway, row])


@given(arrays(np.float64, (6, 8), elements=st.floats(0, 1)), st.integers(0, 5), st.integers(0, 7))
def test_one_nan_touches_one_cell_only(cell: np.ndarray, row: int, column: int) -> None:
    path = np.full((1, 6, 2), 0.5)
    weight = SCORERS["v3"](RANGES)
    before = score(cell, path, weight)[0]
    cell = cell.copy()
    cell[row, column] = math.nan
    after = score(cell, path, weight)[0]
    others = np.arange(6) != row
    np.testing.assert_array_equal(before[others], after[others])
    assert np.isfinite(after[row])


@given(
    arrays(np.float64, 8, elements=st.floats(0, 1)),
    st.integers(0, 7),
    st.floats(0, 1),
)
def test_more_of_any_signal_is_never_less_pressure(signals: np.ndarray, column: int, more: float) -> None:
    worse = signals.copy()
    worse[column] = max(worse[column], more)
    pair = score(np.stack((signals, worse)), np.full((1, 2, 2), 0.1), SCORERS["v3"](RANGES))[0]
    assert pair[1] >= pair[0] - 1e-12


@given(arrays(np.float64, (6, 8), elements=st.floats(0, 1)), st.integers(0, 5), st.integers(0, 7))
def test_one_nan_touches_one_cell_only_also_where_gaps_are_filled(
    cell: np.ndarray, row: int, column: int
) -> None:
    pools, ready, weight = fleet_of(*"abcdef").pools(), np.ones(6, dtype=bool), SCORERS["v3"](RANGES)
    odd = cell.copy()
    odd[row, column] = math.nan
    filled = fill(odd, weight[:8], pools, ready)
    others = np.arange(6) != row
    np.testing.assert_array_equal(filled[others], cell[others])
    assert filled[row, column] == np.median(cell[others, column])


def test_what_nobody_in_the_pool_has_is_not_made_up() -> None:
    pools, weight = fleet_of("a", "b").pools(), np.ones(3)
    cell = np.array([[0.5, math.nan, 0.1], [0.7, math.nan, math.nan]])
    filled = fill(cell, weight, pools, np.array([True, False]))
    np.testing.assert_array_equal(filled, [[0.5, math.nan, 0.1], [0.7, math.nan, 0.1]])


def test_v2_does_not_look_at_the_network() -> None:
    cell = np.full((1, 8), 0.25)
    near, far = np.zeros((1, 1, 2)), np.ones((1, 1, 2))
    weight = SCORERS["v2"](RANGES)
    assert score(cell, near, weight) == score(cell, far, weight)
    assert count_present(cell, near, weight) == 8
    weight = SCORERS["v3"](RANGES)
    assert score(cell, near, weight) < score(cell, far, weight)


def test_the_weighted_mean_is_that_of_the_catalogue() -> None:
    cell = np.full((1, 8), math.nan)
    cell[0, INDEX["queue_depth"]], cell[0, INDEX["kv_fill"]] = 1.0, 0.5
    found = score(cell, np.full((1, 1, 2), math.nan), SCORERS["v3"](RANGES))
    assert found[0, 0] == pytest.approx((0.20 * 1.0 + 0.12 * 0.5) / 0.32)


def test_a_saturating_signal_at_its_top_is_full_pressure_and_absent_changes_nothing() -> None:
    mean = np.array([0.2, 0.2, 0.2])
    assert saturate(mean, np.array([1.0, 0.5, math.nan])).tolist() == pytest.approx([1.0, 0.6, 0.2])
