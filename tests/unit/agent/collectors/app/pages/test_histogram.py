"""Quantiles against PromQL's rules, and windows of them."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.app.pages.histogram import WindowedHistogram, quantile

INF = math.inf
ONE = (("engine", "0"),)
TWO = (("engine", "1"),)


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        ({1.0: 0, 2.0: 100, INF: 100}, 1.95),
        ({1.0: 100, INF: 100}, 0.95),
        ({-1.0: 100, 1.0: 100, INF: 100}, -1.0),
        ({1.0: 10, 2.0: 20, INF: 100}, 2.0),
        ({1.0: 95, 2.0: 100, INF: 100}, 1.0),
        ({1.0: 50, 2.0: 50, 4.0: 100, INF: 100}, 3.8),
        ({1.0: 0, INF: 0}, None),
        ({INF: 5}, None),
        ({1.0: 5, 2.0: 5}, None),
        ({}, None),
    ],
)
def test_p95(buckets: dict[float, float], expected: float | None) -> None:
    found = quantile(0.95, buckets)
    assert found == (None if expected is None else pytest.approx(expected))


def test_falling_counts_are_lifted() -> None:
    assert quantile(0.5, {1.0: 10, 2.0: 4, INF: 10}) == quantile(0.5, {1.0: 10, 2.0: 10, INF: 10})


def by_ranks(q: Fraction, bounds: list[int], counts: list[int]) -> Fraction | None:
    """Straight from the definition: walk the piecewise linear cumulative curve until it reaches the rank.

    `counts` are the samples inside each bucket, the +Inf bucket last.
    """
    if sum(counts) == 0:
        return None
    rank = q * sum(counts)
    edges = [0, *bounds]
    seen = 0
    for (low, high), count in zip(pairwise(edges), counts, strict=False):
        if seen + count >= rank:
            return low + Fraction(high - low) * (rank - seen) / count if count else Fraction(low)
        seen += count
    return Fraction(bounds[-1])


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=8, unique=True).map(sorted),
    st.data(),
    st.integers(1, 100),
)
def test_against_the_definition(bounds: list[int], data: st.DataObject, percent: int) -> None:
    n = len(bounds) + 1
    counts = data.draw(st.lists(st.integers(0, 30), min_size=n, max_size=n))
    cumulative = {float(b): float(sum(counts[: i + 1])) for i, b in enumerate(bounds)}
    found = quantile(percent / 100, cumulative | {INF: float(sum(counts))})
    expected = by_ranks(Fraction(percent, 100), bounds, counts)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        # At a bucket's very edge, rounding of q * n may decide for the neighbour: same value there,
        # unless empty buckets lie between.
        near = [by_ranks(Fraction(percent, 100) + Fraction(e, 10**9), bounds, counts) for e in (-1, 0, 1)]
        assert any(value is not None and found == pytest.approx(float(value), rel=1e-6) for value in near)


class TestWindow:
    def feed(self, histogram: WindowedHistogram, now: float, *counts: float, epoch: float = 1.0) -> None:
        histogram.update({ONE: dict(zip((1.0, 2.0, INF), counts, strict=True))}, epoch, now)

    def test_history_before_the_first_page_is_left_out(self) -> None:
        histogram = WindowedHistogram(30.0)
        self.feed(histogram, 0.0, 0, 1000, 1000)
        assert histogram.quantile(0.95) is None
        self.feed(histogram, 0.5, 100, 1100, 1100)
        assert histogram.quantile(0.95) == pytest.approx(0.95)

    def test_old_samples_leave_the_window(self) -> None:
        histogram = WindowedHistogram(10.0)
        self.feed(histogram, 0.0, 0, 0, 0)
        self.feed(histogram, 1.0, 0, 50, 50)
        assert histogram.quantile(0.95) == pytest.approx(1.95)
        for second in range(2, 14):
            self.feed(histogram, float(second), 0, 50, 50)
        assert histogram.quantile(0.95) is None

    def test_engine_restart_keeps_the_window(self) -> None:
        histogram = WindowedHistogram(30.0)
        self.feed(histogram, 0.0, 10, 10, 10)
        self.feed(histogram, 0.5, 20, 20, 20)
        self.feed(histogram, 1.0, 0, 10, 10, epoch=2.0)
        assert histogram.quantile(0.5) == pytest.approx(1.0)

    def test_changed_bounds_restart_the_window(self) -> None:
        histogram = WindowedHistogram(30.0)
        self.feed(histogram, 0.0, 0, 0, 0)
        self.feed(histogram, 0.5, 0, 50, 50)
        histogram.update({ONE: {5.0: 50.0, INF: 50.0}}, 1.0, 1.0)
        assert histogram.quantile(0.95) is None
        histogram.update({ONE: {5.0: 60.0, INF: 60.0}}, 1.0, 1.5)
        assert histogram.quantile(0.95) == pytest.approx(4.75)

    def test_ranks_are_merged(self) -> None:
        histogram = WindowedHistogram(30.0)
        histogram.update({ONE: {1.0: 0.0, INF: 0.0}, TWO: {1.0: 7.0, INF: 9.0}}, 1.0, 0.0)
        histogram.update({ONE: {1.0: 8.0, INF: 8.0}, TWO: {1.0: 7.0, INF: 11.0}}, 1.0, 0.5)
        assert histogram.quantile(0.8) == pytest.approx(1.0)
        assert histogram.quantile(0.4) == pytest.approx(0.5)

    def test_vanished_rank_is_no_reset(self) -> None:
        """The sum falls when a rank is gone; taken as a reset it would count all history as new."""
        histogram = WindowedHistogram(30.0)
        histogram.update({ONE: {1.0: 0.0, INF: 0.0}, TWO: {1.0: 0.0, INF: 900.0}}, 1.0, 0.0)
        histogram.update({ONE: {1.0: 4.0, INF: 4.0}}, 1.0, 0.5)
        assert histogram.quantile(0.95) == pytest.approx(0.95)

    def test_restart_leaves_the_warm_up_out(self) -> None:
        histogram = WindowedHistogram(30.0)
        self.feed(histogram, 0.0, 0, 0, 0)
        self.feed(histogram, 0.5, 0, 1, 1)
        histogram.restart()
        assert histogram.quantile(0.95) is None
        self.feed(histogram, 1.0, 0, 1, 1)
        assert histogram.quantile(0.95) is None
        self.feed(histogram, 1.5, 1, 2, 2)
        assert histogram.quantile(0.95) == pytest.approx(0.95)

    def test_page_without_the_histogram_changes_nothing(self) -> None:
        histogram = WindowedHistogram(30.0)
        self.feed(histogram, 0.0, 0, 0, 0)
        self.feed(histogram, 0.5, 0, 50, 50)
        histogram.update({}, 1.0, 1.0)
        assert histogram.quantile(0.95) == pytest.approx(1.95)
