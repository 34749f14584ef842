"""vLLM's metrics page, 0.6.6 to current: which family gives which figure, and how series fold.

With data parallelism each rank has its own `engine="N"` series on one page: queues add up, the
fullest KV cache counts, histograms and counters stay apart by series until their differences
are taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from headrace_agent.collectors.app.pages.page import Page, Wanted
from headrace_agent.collectors.exposition import Sample, SeriesKey

# Beyond it a float no longer counts one by one: no engine has come this far.
MAX_COUNT: Final = 2.0**53


@dataclass(frozen=True, slots=True)
class Family:
    """Where one figure stands: the families that may hold it, newest name first."""

    names: tuple[str, ...]
    suffix: str = ""


# Figure (a name of the signal catalogue where there is one) -> families.
TABLE: Final[Mapping[str, Family]] = {
    "queue_depth": Family(("vllm:num_requests_waiting",)),
    "running": Family(("vllm:num_requests_running",)),
    "kv_fill": Family(("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")),
    "ttft_p95_s": Family(("vllm:time_to_first_token_seconds",), suffix="_bucket"),
    "finished": Family(("vllm:request_success_total",)),
    # 0.6.6 has none: client errors are invisible there.
    "responses": Family(("http_requests_total",)),
    # In the newest only; its absence means nothing.
    "sleep": Family(("vllm:engine_sleep_state",)),
    # Vanishes where several API servers share a page.
    "started_at": Family(("process_start_time_seconds",)),
}
OPTIONAL: Final = frozenset({"sleep", "started_at"})

WANTED: Final = Wanted({name + f.suffix: name for f in TABLE.values() for name in f.names})

# Requests that manage the engine; their failures are no user's.
_ADMIN_HANDLERS: Final = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")
_NOT_OK_REASONS: Final = {"abort": "cancelled", "error": "server_errors"}


@dataclass(frozen=True, slots=True)
class Figures:
    """What one page says. None and missing keys: the page does not say it.

    `ttft`: series -> upper bound `le` in seconds -> cumulative count. `responses` and
    `finished`: (class, series) -> count, where class is ok, client_errors, throttled,
    server_errors or cancelled; None where the family is absent. `exact_codes`: statuses are
    given one by one, so that 429 is told apart. `started_at`: seconds since the epoch.
    `missing`: families that every version should have, by their newest name. `problems`: values
    that cannot be and were left out, in words that do not vary from page to page. `cut`: the page
    ends in the middle of a line.
    """

    is_vllm: bool = False
    queue_depth: float | None = None
    running: float | None = None
    kv_fill: float | None = None
    ttft: Mapping[SeriesKey, Mapping[float, float]] | None = None
    responses: Mapping[tuple[str, SeriesKey], float] | None = None
    finished: Mapping[tuple[str, SeriesKey], float] | None = None
    exact_codes: bool = False
    awake: bool | None = None
    started_at: float | None = None
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    cut: bool = False

    @property
    def in_flight(self) -> int | None:
        """Requests running and waiting; None where either is unknown."""
        if self.running is None or self.queue_depth is None:
            return None
        count = self.running + self.queue_depth
        return round(count) if is_count(count) else None

    @property
    def has_served(self) -> bool | None:
        """Whether requests were answered; None where the page does not tell."""
        counts = [*(self.responses or {}).items(), *(self.finished or {}).items()]
        if any(kind == "ok" and value > 0 for (kind, _), value in counts):
            return True
        return None if self.cut or (self.responses is None and self.finished is None) else False


def is_count(value: float) -> bool:
    """Whether a value can be a count of something: finite, not negative, and exact."""
    return 0 <= value <= MAX_COUNT


def read(page: Page) -> Figures:
    """Map a page to figures."""
    return _Reading(page).figures()


class _Reading:
    """One page on its way to figures, and what could not be taken from it."""

    def __init__(self, page: Page) -> None:
        self._present = {figure: _newest_present(family, page) for figure, family in TABLE.items()}
        self._families = page.families
        self._cut = page.cut
        self._problems: list[str] = []
        self._by_name: dict[str, list[Sample]] = {}
        for sample in page.samples:
            self._by_name.setdefault(sample.name, []).append(sample)

    def figures(self) -> Figures:
        responses, finished = self._samples("responses"), self._samples("finished")
        buckets = self._samples("ttft_p95_s")
        kv_fill = self._fold("kv_fill", max)
        if kv_fill is not None and not kv_fill <= _FULL:
            self._leave_out("kv_fill")
            kv_fill = None
        return Figures(
            is_vllm=any(name.startswith("vllm:") for name in self._families),
            queue_depth=self._fold("queue_depth", sum),
            running=self._fold("running", sum),
            kv_fill=min(kv_fill, 1.0) if kv_fill is not None else None,
            ttft=self._histogram(buckets) if buckets is not None else None,
            responses=self._count("responses", _response_class) if responses is not None else None,
            finished=self._count("finished", _finish_class) if finished is not None else None,
            exact_codes=any(sample.labels.get("status", "").isdigit() for sample in responses or ()),
            awake=_awake(self._samples("sleep") or ()),
            started_at=self._fold("started_at", max),
            missing=tuple(
                TABLE[figure].names[0]
                for figure, name in self._present.items()
                if name is None and figure not in OPTIONAL
            ),
            problems=tuple(dict.fromkeys(self._problems)),
            cut=self._cut,
        )

    def _samples(self, figure: str) -> Sequence[Sample] | None:
        """A figure's samples; None where the page does not have its family."""
        name = self._present[figure]
        return None if name is None else self._by_name.get(name + TABLE[figure].suffix, ())

    def _leave_out(self, figure: str) -> None:
        self._problems.append(f"{self._present[figure]} has values that cannot be; they were left out")

    def _counts(self, figure: str) -> list[Sample]:
        """A figure's samples whose values can be."""
        samples = self._samples(figure) or ()
        good = [sample for sample in samples if is_count(sample.value)]
        if len(good) < len(samples):
            self._leave_out(figure)
        return good

    def _fold(self, figure: str, how: Callable[[list[float]], float]) -> float | None:
        samples = self._counts(figure)
        if not samples:
            return None
        value = float(how([sample.value for sample in samples]))
        if is_count(value):
            return value
        self._leave_out(figure)
        return None

    def _histogram(self, samples: Iterable[Sample]) -> dict[SeriesKey, dict[float, float]]:
        """Buckets by series; a series without its +Inf bucket was cut off and is left out."""
        series: dict[SeriesKey, dict[float, float]] = {}
        for sample in samples:
            le = _bound(sample.labels.get("le", ""))
            if is_count(sample.value) and (is_count(le) or le == math.inf):
                series.setdefault(sample.labels.key(without="le"), {})[le] = sample.value
            else:
                self._leave_out("ttft_p95_s")
        return {key: buckets for key, buckets in series.items() if math.inf in buckets}

    def _count(
        self, figure: str, classify: Callable[[Mapping[str, str]], str | None]
    ) -> dict[tuple[str, SeriesKey], float]:
        return {
            (kind, sample.labels.key()): sample.value
            for sample in self._counts(figure)
            if (kind := classify(sample.labels)) is not None
        }


# A little above 1 is rounding, much above it is another unit and no figure.
_FULL: Final = 1.01


def _newest_present(family: Family, page: Page) -> str | None:
    return next((name for name in family.names if name in page.families), None)


@lru_cache(maxsize=1024)
def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _response_class(labels: Mapping[str, str]) -> str | None:
    """The class of a response to a generation request; None for all other requests."""
    handler = labels.get("handler", "")
    if not handler.startswith("/v1/") or handler in _ADMIN_HANDLERS or labels.get("method", "POST") != "POST":
        return None
    status = labels.get("status", "")
    exact = {"429": "throttled", "499": "cancelled"}
    return exact.get(status) or {"2": "ok", "4": "client_errors", "5": "server_errors"}.get(status[:1])


def _finish_class(labels: Mapping[str, str]) -> str | None:
    return _NOT_OK_REASONS.get(labels.get("finished_reason", ""), "ok")


def _awake(samples: Iterable[Sample]) -> bool | None:
    """False where any rank sleeps; None where the engine does not say."""
    awake = [sample.value for sample in samples if sample.labels.get("sleep_state") == "awake"]
    return all(value != 0 for value in awake) if awake else None
