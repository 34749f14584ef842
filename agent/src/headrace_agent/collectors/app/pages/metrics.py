"""The engine's metrics as a source: pages in, signals out, and how fresh and whole they are."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.pages import vllm
from headrace_agent.collectors.app.pages.counters import RequestCounter
from headrace_agent.collectors.app.pages.histogram import WindowedHistogram
from headrace_agent.collectors.app.pages.page import Page, PageReader
from headrace_agent.collectors.app.pages.vllm import Figures
from headrace_agent.collectors.exposition import PageError
from headrace_agent.collectors.readings import SourceReading, Status, Totals
from headrace_agent.settings import EngineSettings

NAME = "engine"
# Figures older than this many scrape intervals are not given out.
_STALE_INTERVALS = 5
_NOT_VLLM = "the page has no vllm: family; is this a vLLM engine's metrics page?"


class MetricsSource:
    """What the engine's pages say, and since when."""

    def __init__(self, settings: EngineSettings) -> None:
        self._interval_s = settings.scrape_interval_s
        self._stale_after_s = _STALE_INTERVALS * self._interval_s
        self._pages = PageReader(vllm.WANTED)
        self._page = Page()
        self._requests = RequestCounter(settings.ttft_window_s)
        self._ttft = WindowedHistogram(settings.ttft_window_s)
        self._figures = Figures()
        self._signals: dict[str, float] = {}
        self._status = Status.NO_DATA
        self._detail = "not read yet"
        self._read_at: float | None = None
        self.is_vllm = False

    @property
    def trouble(self) -> str:
        """What is wrong with the source; "" for nothing."""
        return self._detail

    @property
    def totals(self) -> Totals | None:
        """Requests counted since the agent started."""
        return self._requests.totals

    def take(self, answer: Answer, now: float, took_s: float = 0.0) -> Figures | None:
        """Take in what GET /metrics answered within `took_s`; None where that is no page.

        An engine that is slow to answer is asked less often, and its figures last longer.
        """
        if answer.status != 200:
            self.fail(f"GET /metrics answered {answer.status}")
            return None
        try:
            page = self._pages.read(answer.body)
        except PageError as error:
            self.fail(f"GET /metrics: {error}")
            return None
        self._stale_after_s = _STALE_INTERVALS * max(self._interval_s, took_s)
        self._read(page, now)
        return self._figures

    def fail(self, cause: str) -> None:
        """The page could not be had; figures of the one before are given out while they are fresh."""
        self._status, self._detail = Status.FAILED, cause

    def _read(self, page: Page, now: float) -> None:
        figures = self._figures if page is self._page else vllm.read(page)
        self._page, self._figures, self._read_at = page, figures, now
        self.is_vllm = self.is_vllm or figures.is_vllm
        self._status, self._detail = _judge(page, figures)
        # On a cut page a series may be missing that comes back with its whole history.
        if figures.is_vllm and not page.cut:
            self._requests.update(figures, now)
            self._ttft.update(figures.ttft or {}, figures.started_at, now)
        self._signals = self._work_out()

    def restart_windows(self) -> None:
        """Leave what was seen so far out of the error rate and of the P95 (a warm-up's own slow token)."""
        self._requests.restart_window()
        self._ttft.restart()
        self._signals = self._work_out()

    def reading(self, now: float) -> SourceReading:
        """The source's condition at `now`."""
        if self._status is Status.OK and not self._fresh(now):
            return SourceReading(NAME, Status.STALE, self._read_at, "no new page for too long")
        return SourceReading(NAME, self._status, self._read_at, self._detail)

    def signals(self, now: float) -> Mapping[str, float]:
        """Catalogue names -> figures; only what the last page said, and nothing once that is old."""
        return self._signals if self._fresh(now) else {}

    def _work_out(self) -> dict[str, float]:
        found = {
            "queue_depth": self._figures.queue_depth,
            "ttft_p95_s": self._ttft.quantile(0.95),
            "error_rate": self._requests.error_rate,
            "kv_fill": self._figures.kv_fill,
        }
        return {name: value for name, value in found.items() if value is not None}

    def in_flight(self, now: float) -> int | None:
        """Requests running and waiting; None where unknown or old."""
        return self._figures.in_flight if self._fresh(now) else None

    def _fresh(self, now: float) -> bool:
        return self._read_at is not None and now - self._read_at <= self._stale_after_s


def _judge(page: Page, figures: Figures) -> tuple[Status, str]:
    if page.empty:
        return Status.NO_DATA, "GET /metrics: the page is empty"
    if not figures.is_vllm:
        return (Status.FAILED, "; ".join(page.problems)) if page.problems else (Status.NO_DATA, _NOT_VLLM)
    missing = "" if page.cut or not figures.missing else f"families missing: {', '.join(figures.missing)}"
    return Status.OK, "; ".join([*page.problems, *figures.problems, *filter(None, [missing])])
