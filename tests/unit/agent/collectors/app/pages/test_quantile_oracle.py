"""P95 from bucket deltas against another implementation of `histogram_quantile`, and of what an engine does.

The oracle goes the other way round: it draws the cumulative curve and reads it at the rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.app.pages.histogram import WindowedHistogram, quantile

INF = math.inf

# Vectors of Prometheus' own test data for the function: two histograms and what it gives of them.
POSITIVE = {0.1: 5, 0.2: 7, 1.0: 11, INF: 12}
NEGATIVE = {-0.2: 1, -0.1: 2, 0.3: 2, INF: 3}


@pytest.mark.parametrize(
    ("q", "positive", "negative"),
    [(0.0, 0.0, -0.2), (0.2, 0.048, -0.2), (0.5, 0.15, -0.15), (0.8, 0.72, 0.3), (1.0, 1.0, 0.3)],
)
def test_vectors(q: float, positive: float, negative: float) -> None:
    assert quantile(q, POSITIVE) == pytest.approx(positive)
    assert quantile(q, NEGATIVE) == pytest.approx(negative)


def oracle(q: float, buckets: Mapping[float, float]) -> float | None:
    """The quantile, read off the cumulative curve."""
    bounds = np.array(sorted(bound for bound in buckets if bound < INF))
    if INF not in buckets or bounds.size == 0:
        return None
    curve = np.maximum.accumulate([buckets[bound] for bound in [*bounds, INF]])
    total = curve[-1]
    if not total > 0:
        return None
    rank = q * total
    if rank > curve[-2]:
        return float(bounds[-1])
    if bounds[0] <= 0 and rank <= curve[0]:
        return float(bounds[0])
    start = 0.0 if bounds[0] > 0 else bounds[0]
    x = np.concatenate([[0.0 if bounds[0] > 0 else curve[0]], curve[:-1]])
    y = np.concatenate([[start], bounds])
    # Of bounds that share a count the lowest is where the curve first gets there.
    first = np.concatenate([[True], np.diff(x) > 0])
    at = int(np.searchsorted(x[first], rank, side="left"))
    if at == 0:
        return float(y[first][0])
    # A flat stretch before the rank ends at its highest bound.
    last_below = int(np.searchsorted(x, x[first][at - 1], side="right")) - 1
    low, high = y[last_below], y[first][at]
    below, above = x[last_below], x[first][at]
    return float(low + (high - low) * (rank - below) / (above - below))


counts_strategy = st.lists(st.integers(0, 40), min_size=2, max_size=9)


@given(
    st.lists(st.integers(-50, 1000), min_size=8, max_size=8, unique=True),
    counts_strategy,
    st.sampled_from([0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0]),
)
def test_any_histogram(bounds: list[int], counts: list[int], q: float) -> None:
    edges = [float(bound) for bound in sorted(bounds[: len(counts) - 1])]
    cumulative = np.cumsum(counts).tolist()
    buckets = dict(zip([*edges, INF], map(float, cumulative), strict=True))
    found, expected = quantile(q, buckets), oracle(q, buckets)
    assert (found is None) == (expected is None)
    if found is None or expected is None:
        return
    # Where the rank meets a count exactly, rounding may decide for either side of a flat stretch.
    near = [oracle(min(q * (1 + e), 1.0), buckets) for e in (-1e-12, 0.0, 1e-12)]
    assert any(value is not None and found == pytest.approx(value, rel=1e-6, abs=1e-9) for value in near)


@given(counts_strategy, st.sampled_from([0.5, 0.95]))
def test_counts_that_fall_are_lifted(counts: list[int], q: float) -> None:
    """Pages are not written at one moment: a bucket may lag behind a lower one."""
    bounds = [*[float(n + 1) for n in range(len(counts) - 1)], INF]
    buckets = dict(zip(bounds, map(float, counts), strict=True))
    lifted = dict(zip(bounds, np.maximum.accumulate([float(n) for n in counts]).tolist(), strict=True))
    assert quantile(q, buckets) == quantile(q, lifted)


BOUNDS = (0.1, 0.5, 1.0, 5.0, INF)


@dataclass
class Rank:
    """One data-parallel rank of an engine: what it observed since its start."""

    observed: list[float] = field(default_factory=list)

    def buckets(self) -> dict[float, float]:
        return {bound: float(sum(1 for value in self.observed if value <= bound)) for bound in BOUNDS}


def quantile_of(values: Sequence[float]) -> float | None:
    return oracle(0.95, {bound: float(sum(1 for value in values if value <= bound)) for bound in BOUNDS})


steps = st.lists(
    st.tuples(
        st.booleans(),  # the engine is started anew before this step
        st.dictionaries(st.integers(0, 2), st.lists(st.sampled_from([0.05, 0.3, 0.7, 2.0, 9.0]), max_size=5)),
        st.sets(st.integers(0, 2)),  # ranks that this page does not show
    ),
    min_size=1,
    max_size=12,
)


@given(steps)
def test_a_window_holds_what_was_observed_in_it(
    plan: list[tuple[bool, dict[int, list[float]], set[int]]],
) -> None:
    """Ranks that appear, vanish and return, and engines that restart: each sample counts once."""
    histogram, ranks, epoch = WindowedHistogram(1e6), {}, 1.0
    seen: list[float] = []
    pending: dict[int, list[float]] = {}
    based = False
    for now, (restart, observed, hidden) in enumerate(plan):
        if restart:
            ranks, pending, epoch = {}, {}, epoch + 1.0
        for rank, values in observed.items():
            ranks.setdefault(rank, Rank()).observed.extend(values)
            pending.setdefault(rank, []).extend(values)
        shown = {rank: own for rank, own in ranks.items() if rank not in hidden}
        series = {(("engine", str(rank)),): own.buckets() for rank, own in shown.items()}
        histogram.update(series, epoch, float(now))
        if not series:
            continue
        for rank in shown:
            if based:
                seen += pending.get(rank, [])
            pending[rank] = []
        based = True
        found, expected = histogram.quantile(0.95), quantile_of(seen)
        assert found == (None if expected is None else pytest.approx(expected, rel=1e-6))


@given(st.lists(st.lists(st.sampled_from([0.05, 0.3, 0.7, 2.0, 9.0]), max_size=4), min_size=1, max_size=40))
def test_a_window_slides(plan: list[list[float]]) -> None:
    """A page a second and ten seconds of window: the samples of the last ten pages."""
    histogram, rank = WindowedHistogram(10.0), Rank()
    histogram.update({(): rank.buckets()}, 1.0, 0.0)
    for second, values in enumerate(plan, start=1):
        rank.observed.extend(values)
        histogram.update({(): rank.buckets()}, 1.0, float(second))
        expected = quantile_of([value for each in plan[max(0, second - 10) : second] for value in each])
        found = histogram.quantile(0.95)
        assert found == (None if expected is None else pytest.approx(expected, rel=1e-6))
