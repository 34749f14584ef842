"""What the picker counts, for Prometheus; the names are fixed (docs/picker.md)."""

from __future__ import annotations

import math
from collections import Counter as Counts
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from headrace_controller.picker.guards import SLOW, WORSE
from headrace_controller.picker.picker import Picker
from headrace_controller.picker.requests import Outcome, Served

_PICK_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1)
_ERROR = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 4.0)


class PickMetrics:
    """Counters that the picker raises; `counts` are the same picks for people."""

    def __init__(self, registry: CollectorRegistry, picker: Picker) -> None:
        book = picker.book
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
        found = Gauge(
            "headrace_pick_cache_found_ratio",
            "Of the prompt tokens expected in engines' prefix caches, the share that they found there.",
            registry=registry,
        )
        check = picker.known.cache_check
        found.set_function(lambda: math.nan if check.share is None else check.share)
        lost = Gauge(
            "headrace_picks_lost",
            "Requests of which no answer and no end was heard, since the controller's start.",
            registry=registry,
        )
        lost.set_function(lambda: book.lost)
        self._naming = Gauge(
            "headrace_picker_naming",
            "1 while the picker names cells, 0 while it does not.",
            registry=registry,
        )
        rests = Counter(
            "headrace_picker_rests",
            "How often the picker stood aside, by why.",
            ["reason"],
            registry=registry,
        )
        self._rests = {reason: rests.labels(reason) for reason in (SLOW, WORSE)}
        self._by_outcome = {each: self._picks.labels(each.value) for each in Outcome}
        self._as_named, self._elsewhere = self._served.labels("named"), self._served.labels("other")

    def watch(self, names: Callable[[], bool]) -> None:
        """Ask whether cells are named whenever the page is made: a picture grows old by itself."""
        self._naming.set_function(names)

    def rests(self, kind: str) -> None:
        """The picker stands aside; `kind` is its guard's, "" = none has it do so."""
        if kind:
            self._rests[kind].inc()

    def picked(self, outcome: Outcome, seconds: float) -> None:
        """A pick was made, or not."""
        self._seconds.observe(seconds)
        self._by_outcome[outcome].inc()
        self.counts[outcome.value] += 1

    def served(self, served: Served) -> None:
        """What became of a request."""
        if served.named:
            (self._as_named if served.as_named else self._elsewhere).inc()
        if served.observed_s is not None and served.predicted_s:
            self._error.observe(abs(served.observed_s - served.predicted_s) / served.predicted_s)
