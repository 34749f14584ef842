"""vLLM's metrics page, 0.6.6 to current: which family gives which figure, and how series fold.

With data parallelism each rank has its own `engine="N"` series on one page: queues add up, the
fullest KV cache counts, histograms and counters stay apart by series until their differences
are taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headrace_agent.collectors.app.page import Page, Wanted
from headrace_agent.collectors.exposition import Sample

SeriesKey = tuple[tuple[str, str], ...]


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
    `missing`: families that every version should have, by their newest name.
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

    @property
    def in_flight(self) -> int | None:
        """Requests running and waiting; None where either is unknown."""
        if self.running is None or self.queue_depth is None:
            return None
        return round(self.running + self.queue_depth)

    @property
    def has_served(self) -> bool:
        """True where the page proves that requests were answered."""
        counts = [*(self.responses or {}).items(), *(self.finished or {}).items()]
        return any(kind == "ok" and value > 0 for (kind, _), value in counts)


def read(page: Page) -> Figures:
    """Map a page to figures."""
    present = {figure: _newest_present(family, page) for figure, family in TABLE.items()}
    by_figure = {
        figure: [s for s in page.samples if s.name == name + TABLE[figure].suffix]
        for figure, name in present.items()
        if name is not None
    }
    responses = by_figure.get("responses")
    finished = by_figure.get("finished")
    return Figures(
        is_vllm=any(name.startswith("vllm:") for name in page.families),
        queue_depth=_fold(sum, by_figure.get("queue_depth", ())),
        running=_fold(sum, by_figure.get("running", ())),
        kv_fill=_fraction(_fold(max, by_figure.get("kv_fill", ()))),
        ttft=_histogram(by_figure["ttft_p95_s"]) if "ttft_p95_s" in by_figure else None,
        responses=_count(responses, _response_class) if responses is not None else None,
        finished=_count(finished, _finish_class) if finished is not None else None,
        exact_codes=any(sample.labels.get("status", "").isdigit() for sample in responses or ()),
        awake=_awake(by_figure.get("sleep", ())),
        started_at=_fold(max, by_figure.get("started_at", ())),
        missing=tuple(TABLE[f].names[0] for f, name in present.items() if name is None and f not in OPTIONAL),
    )


def _newest_present(family: Family, page: Page) -> str | None:
    return next((name for name in family.names if name in page.families), None)


def _is_count(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def _fold(how: Callable[[list[float]], float], samples: Iterable[Sample]) -> float | None:
    values = [sample.value for sample in samples if _is_count(sample.value)]
    return float(how(values)) if values else None


def _fraction(value: float | None) -> float | None:
    """A share of 1; a little above 1 is rounding, much above it is another unit and no figure."""
    return min(value, 1.0) if value is not None and value <= 1.01 else None


def _series(sample: Sample, without: str = "") -> SeriesKey:
    return tuple(sorted(item for item in sample.labels.items() if item[0] != without))


def _histogram(samples: Iterable[Sample]) -> dict[SeriesKey, dict[float, float]]:
    """Buckets by series; a series without its +Inf bucket was cut off and is left out."""
    series: dict[SeriesKey, dict[float, float]] = {}
    for sample in samples:
        le = _bound(sample.labels.get("le", ""))
        if not math.isnan(le) and _is_count(sample.value):
            series.setdefault(_series(sample, without="le"), {})[le] = sample.value
    return {key: buckets for key, buckets in series.items() if math.inf in buckets}


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _count(
    samples: Iterable[Sample], classify: Callable[[Mapping[str, str]], str | None]
) -> dict[tuple[str, SeriesKey], float]:
    return {
        (kind, _series(sample)): sample.value
        for sample in samples
        if _is_count(sample.value) and (kind := classify(sample.labels)) is not None
    }


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
