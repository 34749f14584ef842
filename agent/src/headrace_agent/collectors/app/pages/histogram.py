"""Quantiles of a histogram over a sliding window, computed as PromQL's `histogram_quantile` does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import add

from headrace_agent.collectors.app.pages.counters import Increments, SlidingWindow
from headrace_agent.collectors.exposition import SeriesKey


def quantile(q: float, buckets: Mapping[float, float]) -> float | None:
    """The `q` quantile (0 to 1) of cumulative counts by upper bound.

    Linear within a bucket; the first bucket starts at 0 where its bound is positive; a rank in
    the +Inf bucket gives the highest finite bound. Counts that fall from one bound to the next
    are lifted. None without samples, without a +Inf bucket, or with no other.
    """
    bounds = sorted(buckets)
    return _quantile(q, bounds, [buckets[bound] for bound in bounds])


def _quantile(q: float, bounds: Sequence[float], cumulative: Sequence[float]) -> float | None:
    """The same of counts in the order of their bounds, which rise."""
    if len(bounds) < 2 or bounds[-1] != math.inf:
        return None
    counts = list(accumulate(cumulative, max))
    if counts[-1] <= 0:
        return None
    rank = q * counts[-1]
    at = next((i for i, count in enumerate(counts[:-1]) if count >= rank), len(bounds) - 1)
    if at == len(bounds) - 1:
        return bounds[-2]
    if at == 0:
        low, below = 0.0, 0.0
        if bounds[0] <= 0:
            return bounds[0]
    else:
        low, below = bounds[at - 1], counts[at - 1]
    inside = counts[at] - below
    return low + (bounds[at] - low) * ((rank - below) / inside) if inside > 0 else low


class WindowedHistogram:
    """The samples of the last `window_s` seconds of a histogram that is read from pages.

    Series (data-parallel ranks) are merged over the bounds they share. A change of these bounds
    restarts the window; a reset of the engine's counters does not. `from_start`: what the first
    page shows counts as well.
    """

    def __init__(self, window_s: float, from_start: bool = False) -> None:
        self._from_start = from_start
        self._increments: Increments[SeriesKey] = Increments(from_start)
        self._window = SlidingWindow(window_s)
        self._bounds: tuple[float, ...] = ()
        self._sums: tuple[float, ...] = ()

    def reach(self, window_s: float) -> None:
        """Reach back so many seconds from now on."""
        self._window.reach(window_s)

    def update(
        self, series: Mapping[SeriesKey, Mapping[float, float]], epoch: float | None, now: float
    ) -> None:
        """Take in a page's buckets: series -> bound -> cumulative count."""
        if not series:
            self.pass_time(now)
            return
        bounds = self._bounds
        if any(tuple(buckets) != bounds for buckets in series.values()):
            bounds = tuple(sorted(set.intersection(*(set(buckets) for buckets in series.values()))))
        if bounds != self._bounds:
            self._begin(bounds)
        vectors = {key: _in_order(buckets, bounds) for key, buckets in series.items()}
        for added in self._increments.update(vectors, epoch).values():
            self._sums = tuple(map(add, self._sums, added))
        self._window.push(self._sums, now)

    def _begin(self, bounds: tuple[float, ...]) -> None:
        first = not self._bounds
        self._bounds, self._sums = bounds, (0.0,) * len(bounds)
        self._window.restart()
        if not first:
            self._increments = Increments()
        elif self._from_start:
            self._window.push(self._sums, -math.inf)

    def pass_time(self, now: float) -> None:
        """A page came without buckets: the samples of before grow old all the same."""
        self._window.pass_time(now)

    def restart(self) -> None:
        """Leave what was observed so far out of the window."""
        self._window.restart()

    def quantile(self, q: float) -> float | None:
        """The `q` quantile of the window, in the histogram's unit; None without samples in it."""
        delta = self._window.delta()
        return _quantile(q, self._bounds, delta) if delta else None


def _in_order(buckets: Mapping[float, float], bounds: tuple[float, ...]) -> tuple[float, ...]:
    """The counts at some of a series' bounds."""
    if tuple(buckets) == bounds:  # most pages have them in their order
        return tuple(buckets.values())
    return tuple([buckets[bound] for bound in bounds])
