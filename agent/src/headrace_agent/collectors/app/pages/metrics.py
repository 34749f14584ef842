"""The engine's metrics as a source: pages in, signals out, and how fresh and whole they are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.pages import figures
from headrace_agent.collectors.app.pages.counters import RequestCounter
from headrace_agent.collectors.app.pages.figures import Figures
from headrace_agent.collectors.app.pages.histogram import WindowedHistogram
from headrace_agent.collectors.app.pages.kinds import AUTO, ENGINES
from headrace_agent.collectors.app.pages.motion import Motion
from headrace_agent.collectors.app.pages.page import Page
from headrace_agent.collectors.app.pages.paths import PagePaths
from headrace_agent.collectors.app.pages.reader import EnginePages
from headrace_agent.collectors.exposition import PageError
from headrace_agent.collectors.readings import SourceReading, Status, Totals, Work
from headrace_agent.settings import EngineSettings

NAME: Final = "engine"
FROM_START: Final = "from the start"
FROM_FIRST: Final = "from the first page"
# Figures older than this many scrape intervals are not given out.
_STALE_INTERVALS: Final = 5
# What the loop writes that stands still; the rest is counted where requests come in.
_OF_THE_LOOP: Final = frozenset({"queue_depth", "kv_fill"})
_OF_THE_QUEUE: Final = frozenset({"queue_depth"})
_FROZEN: Final = (
    "the page says that requests run or wait, and nothing on it has moved for {:g} s; "
    "its gauges are not believed"
)
_COLD: Final = "the queue gauges have said 0 since the engine started, although it works; not believed yet"
# There is no page: not found, not allowed to be asked for, not switched on.
_NOT_THERE: Final = frozenset({404, 405, 501})
_SWITCHED_OFF: Final = (
    "; switch the engine's metrics on (SGLang: --enable-metrics, llama.cpp: --metrics), "
    "or set metrics_url where its page is elsewhere (Triton: port 8002)"
)


class MetricsSource:
    """What the engine's pages say, and since when.

    `kind` is the configured one; AUTO takes it from the page. `path` is where the page is, "" for
    where engines of that kind have it. `span`: the figures are of all that the engine counted
    (FROM_START) or of all that was added since the first page (FROM_FIRST), in place of a window.
    """

    def __init__(self, settings: EngineSettings, kind: str = AUTO, path: str = "", span: str = "") -> None:
        self._interval_s = settings.scrape_interval_s
        self._stale_after_s = _STALE_INTERVALS * self._interval_s
        self._pages = EnginePages(kind)
        self._paths = PagePaths(kind, path)
        self._page = Page()
        window_s, from_start = math.inf if span else settings.ttft_window_s, span == FROM_START
        self._requests = RequestCounter(window_s, from_start)
        self._ttft = WindowedHistogram(window_s, from_start)
        self._motion = Motion()
        self._figures = Figures()
        self._signals: dict[str, float] = {}
        self._status = Status.NO_DATA
        self._detail = "not read yet"
        self._read_at: float | None = None

    def retune(self, settings: EngineSettings) -> None:
        """Take other cadences; what was counted stays."""
        self._interval_s = settings.scrape_interval_s
        self._requests.reach(settings.ttft_window_s)
        self._ttft.reach(settings.ttft_window_s)

    @property
    def trouble(self) -> str:
        """What is wrong with the source; "" for nothing."""
        return self._detail

    @property
    def kind(self) -> str:
        """The kind of the engine: the configured one, else that of its page; "" while unknown."""
        return self._pages.kind

    @property
    def totals(self) -> Totals | None:
        """Requests counted since the agent started."""
        return self._requests.totals

    @property
    def resets(self) -> int:
        """How often counters went back: the engine was started anew, or another one answers."""
        return self._requests.resets

    @property
    def frozen_since(self) -> float | None:
        """Since when nothing moves although requests are said to run or wait; None where that is not so."""
        return self._motion.frozen_since

    @property
    def missing(self) -> tuple[str, ...]:
        """Families that the last page should have and has not; none where it was cut short."""
        return () if self._figures.cut else self._figures.missing

    @property
    def path(self) -> str:
        """Where to ask for the page next."""
        return self._paths.path

    def take(self, answer: Answer, now: float, took_s: float = 0.0) -> Figures | None:
        """Take in what GET `path` answered within `took_s`; None where that is no page.

        An engine that is slow to answer is asked less often, and its figures last longer.
        """
        try:
            page = self._open(answer)
        except PageError as error:
            self.fail(f"GET {self.path}: {error}")
            return None
        if page is None:
            return None
        self._stale_after_s = _STALE_INTERVALS * max(self._interval_s, took_s)
        self._read(page, now)
        return self._figures

    def _open(self, answer: Answer) -> Page | None:
        """The page in an answer; None where there is none, and it is looked for elsewhere next time."""
        guessing, path = self._paths.guessing, self.path
        page = self._pages.read(answer.body) if answer.status == 200 else None
        if page is not None and not self._pages.misfit:
            self._paths.found()
            return page
        lost = page is not None and not page.empty and not self._pages.kind
        if lost or answer.status in _NOT_THERE:
            self._paths.missed()
        if guessing:
            self._paths.go_back()
            return None
        if page is None:
            self._status = Status.FAILED
            self._detail = f"GET {path} answered {answer.status}{self._hint(answer.status)}"
        return page

    def fail(self, cause: str) -> None:
        """The page could not be had; figures of the one before are given out while they are fresh."""
        if self._paths.guessing:
            self._paths.go_back()
            return
        self._status, self._detail = Status.FAILED, cause

    def _hint(self, status: int) -> str:
        """What the operator may have to switch on."""
        engine = ENGINES.get(self.kind)
        if status not in _NOT_THERE:
            return ""
        return f"; {engine.help}" if engine is not None and engine.help else _SWITCHED_OFF

    def _read(self, page: Page, now: float) -> None:
        engine = self._pages.engine
        if page is not self._page:
            self._figures = figures.read(engine, page) if engine is not None else Figures(cut=page.cut)
        self._page, self._read_at = page, now
        # On a cut page a series may be missing that comes back with its whole history.
        if engine is not None and not page.cut:
            self._requests.update(self._figures, now)
            self._ttft.update(self._figures.ttft or {}, self._figures.started_at, now)
            self._motion.update(self._figures, engine.still_after_s, self._requests.resets, now)
        else:
            self._requests.pass_time(now)
            self._ttft.pass_time(now)
        self._status, self._detail = self._judge(page)
        self._signals = self._work_out()

    def _judge(self, page: Page) -> tuple[Status, str]:
        if page.empty:
            return Status.NO_DATA, "the page is empty"
        if self._pages.misfit:
            words = "; ".join([*page.problems, self._pages.misfit])
            return (Status.FAILED if page.problems else Status.NO_DATA), words
        remarks = [*page.problems, *self._figures.problems, *self._remarks()]
        return (Status.OK if self.frozen_since is None else Status.STALE), "; ".join(remarks)

    def _remarks(self) -> Iterator[str]:
        engine = self._pages.engine
        assert engine is not None
        if self.missing:
            yield f"families missing: {', '.join(self.missing)}"
        if self.frozen_since is not None:
            yield _FROZEN.format(engine.still_after_s)
        if self._motion.cold:
            yield _COLD

    def restart_windows(self) -> None:
        """Leave what was seen so far out of the error rate and of the P95 (a warm-up's own slow token)."""
        self._requests.restart_window()
        self._ttft.restart()
        self._signals = self._work_out()

    def reading(self, now: float) -> SourceReading:
        """The source's condition at `now`."""
        if self._status in (Status.OK, Status.STALE) and not self._fresh(now):
            return SourceReading(NAME, Status.STALE, self._read_at, "no new page for too long")
        return SourceReading(NAME, self._status, self._read_at, self._detail)

    def signals(self, now: float) -> Mapping[str, float]:
        """Catalogue names -> figures; only what the last page said, and nothing once that is old."""
        return self._signals if self._fresh(now) else {}

    def sources(self, now: float) -> Mapping[str, str]:
        """Each of the signals -> the family of the page that it is read from."""
        return {name: self._figures.sources[name] for name in self.signals(now)}

    def _work_out(self) -> dict[str, float]:
        if self._pages.engine is None:  # the last page was none of an engine
            return {}
        found = {
            "queue_depth": self._figures.queue_depth,
            "ttft_p95_s": self._ttft.quantile(0.95),
            "error_rate": self._requests.error_rate,
            "kv_fill": self._figures.kv_fill,
        }
        withheld = self._withheld()
        return {name: value for name, value in found.items() if value is not None and name not in withheld}

    def _withheld(self) -> frozenset[str]:
        """Signals that the page gives and that are not to be believed now."""
        if self.frozen_since is not None:
            return _OF_THE_LOOP
        return _OF_THE_QUEUE if self._motion.cold else frozenset()

    def in_flight(self, now: float) -> int | None:
        """Requests running and waiting; None where unknown, old, or not to be believed."""
        return self._figures.in_flight if self._fresh(now) and not self._withheld() else None

    def work(self, now: float) -> Work | None:
        """Tokens worked off since the engine's start; None where unknown, old, or cut short."""
        return self._figures.work if self._fresh(now) and not self._figures.cut else None

    def _fresh(self, now: float) -> bool:
        return self._read_at is not None and now - self._read_at <= self._stale_after_s
