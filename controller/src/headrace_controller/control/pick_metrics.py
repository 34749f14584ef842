"""What the picker counts, for Prometheus; the names are fixed (docs/picker.md)."""

from __future__ import annotations

from collections import Counter as Counts

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from headrace_controller.picker.book import Book
from headrace_controller.picker.requests import Outcome, Served

_PICK_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1)
_ERROR = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 4.0)


class PickMetrics:
    """Counters that the picker raises; `counts` are the same picks for people."""

    def __init__(self, registry: CollectorRegistry, book: Book) -> None:
        self.counts: Counts[str] = Counts()
        self._seconds = Histogram(
            "headrace_pick_seconds", "From a request to the named cell.", buckets=_PICK_S, registry=registry
        )
        self._picks = Counter(
            "headrace_picks", "Picks, by what became of them.", ["outcome"], registry=registry
        )
        self._served = Counter(
            "headrace_picks_served",
            "Requests that were named a cell, by who answered.",
            ["by"],
            registry=registry,
        )
        self._error = Histogram(
            "headrace_pick_error_ratio",
            "How far the time to first token was from the predicted one, as a share of it.",
            buckets=_ERROR,
            registry=registry,
        )
        waiting = Gauge("headrace_picks_open", "Requests whose first token is waited for.", registry=registry)
        waiting.set_function(lambda: book.open_requests)
        self._by_outcome = {each: self._picks.labels(each.value) for each in Outcome}
        self._as_named, self._elsewhere = self._served.labels("named"), self._served.labels("other")

    def picked(self, outcome: Outcome, seconds: float) -> None:
        """A pick was made, or not."""
        self._seconds.observe(seconds)
        self._by_outcome[outcome].inc()
        self.counts[outcome.value] += 1

    def served(self, served: Served) -> None:
        """What became of a request."""
        (self._as_named if served.as_named else self._elsewhere).inc()
        if served.observed_s is not None and served.predicted_s:
            self._error.observe(abs(served.observed_s - served.predicted_s) / served.predicted_s)
