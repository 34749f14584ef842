"""One engine, watched: its state, its signals and its facts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headrace_agent.collectors.app import facts
from headrace_agent.collectors.app.changes import ChangeLog
from headrace_agent.collectors.app.health.probe import HealthProbe
from headrace_agent.collectors.app.health.rounds import Rounds, next_due
from headrace_agent.collectors.app.health.start import Starter, Surroundings
from headrace_agent.collectors.app.health.state import Change, EngineHealth
from headrace_agent.collectors.app.health.watch import ConnectionWatch
from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.dial import Dialer
from headrace_agent.collectors.app.http.errors import CallError
from headrace_agent.collectors.app.pages.metrics import NAME, MetricsSource
from headrace_agent.collectors.app.pages.vllm import Figures
from headrace_agent.collectors.containment import Mishaps, keep_running
from headrace_agent.collectors.exposition import MAX_PAGE_BYTES
from headrace_agent.collectors.readings import (
    CellEvent,
    EngineFacts,
    EngineReading,
    EngineState,
    EventKind,
    Model,
    SourceReading,
    Tally,
)
from headrace_agent.settings import CellSettings, EngineSettings
from headrace_shared import log
from headrace_shared.clock import Clock

SCRAPE_OFFSET_S = 0.05
_WARM_UP = "warm-up"
_METRICS = "metrics page"
_FACTS = "model list"


class EngineCollector:
    """Collects from one engine until cancelled; its failures stay here.

    What the engine does wrong is trouble of its source, and what goes wrong unexpectedly is a
    mishap of the one job that it broke, which is started again.

    Collectors that share `rounds` probe together.

    `on_event` is called at each change of state, from the event loop, and must not block.
    `first_seen` is set once the state rests on evidence; until then `reading` says LOADING,
    which of an engine that served all along would be untrue.
    """

    def __init__(
        self,
        cell: CellSettings,
        settings: EngineSettings,
        clock: Clock,
        on_event: Callable[[CellEvent], None],
        mishaps: Mishaps | None = None,
        rounds: Rounds | None = None,
    ) -> None:
        self._cell = cell
        self._settings = settings
        self._clock = clock
        self._on_event = on_event
        self._mishaps = mishaps if mishaps is not None else Mishaps()
        self._rounds = rounds if rounds is not None else Rounds(settings.probe_interval_s, clock)
        self._health = EngineHealth(settings.hung_after_s)
        self._metrics = MetricsSource(settings)
        self._scraping = asyncio.Lock()
        self._needs_start = asyncio.Event()
        self._models: tuple[Model, ...] = ()
        self._version = ""
        self._changes = ChangeLog(cell.id)
        self._log = log.get("engine").bind(cell=cell.id)
        self.first_seen = asyncio.Event()

    async def run(self) -> None:
        """Watch the engine until cancelled; every connection is closed then."""
        dialer = Dialer(self._cell.url, self._clock)
        client = EngineClient(dialer, self._cell.url, self._cell.api_key_file)
        health, settings, clock = self._health, self._settings, self._clock
        jobs = {
            "probe": HealthProbe(client, health, self._rounds, settings.hung_after_s, clock, self._took).run,
            "watch": ConnectionWatch(dialer, clock, self._lost, self._connected).run,
            "scrape": lambda: self._keep_scraping(client),
            "start": self._starter(client).run,
            "facts": lambda: self._keep_facts(client),
        }
        try:
            async with asyncio.TaskGroup() as group:
                for name, job in jobs.items():
                    part = f"engine {self._cell.id}: {name}"
                    group.create_task(keep_running(part, job, clock, self._mishaps), name=part)
        finally:
            client.close()

    @property
    def state(self) -> EngineState | None:
        """The engine's state; None until the first evidence decides it."""
        return self._health.state

    def reading(self, now: float) -> EngineReading:
        """The engine at `now`, on the collector's clock. Signals are those of the last page while it is
        fresh, and none while the engine is down."""
        state = self._health.state or EngineState.LOADING
        down = state is EngineState.DOWN
        return EngineReading(
            state=state,
            signals={} if down else self._metrics.signals(now),
            in_flight=None if down else self._metrics.in_flight(now),
            totals=self._metrics.totals,
            serving_since=self._health.serving_since,
            facts=self._facts,
            source=self._source(state, now),
        )

    def tallies(self) -> Mapping[str, Tally]:
        """What was asked of the engine (`engine` is its metrics page) -> how often."""
        names = {NAME: _METRICS, "models": _FACTS, "warm_up": _WARM_UP}
        tries, failures = self._changes.tries, self._changes.failures
        return {name: Tally(tries[what], failures[what]) for name, what in names.items()}

    @property
    def _facts(self) -> EngineFacts:
        kind = self._cell.kind
        if kind == "auto":
            kind = "vllm" if self._metrics.is_vllm else "auto"
        return EngineFacts("" if kind == "auto" else kind, self._version, self._models)

    def _source(self, state: EngineState, now: float) -> SourceReading:
        """The metrics source; while the engine loads, its detail also says what keeps it from serving."""
        source = self._metrics.reading(now)
        if state is not EngineState.LOADING:
            return source
        lacks = [
            f"{what}: {self._changes.last(what)}" for what in (_FACTS, _WARM_UP) if self._changes.last(what)
        ]
        detail = "; ".join(filter(None, [source.detail, *lacks]))
        return replace(source, detail=detail)

    def _took(self, change: Change | None) -> None:
        if change is not None:
            say = self._log.info if change.state is EngineState.SERVING else self._log.warning
            say("engine state", state=change.state.value, cause=change.cause)
            kind = EventKind[f"ENGINE_{change.state.name}"]
            self._on_event(CellEvent(self._cell.id, kind, change.cause))
            self.first_seen.set()
        if self._health.awaiting:
            self._needs_start.set()

    def _lost(self, cause: str) -> None:
        self._took(self._health.refused(cause, self._clock.now()))

    def _connected(self) -> None:
        self._took(self._health.connected(self._clock.now()))

    def _starter(self, client: EngineClient) -> Starter:
        around = Surroundings(
            scrape=lambda: self._scrape(client),
            read_models=lambda: self._refresh_facts(client),
            took=self._took,
            warmed=self._metrics.restart_windows,
            note=lambda trouble: self._changes.note(_WARM_UP, trouble),
        )
        return Starter(client, self._health, self._settings, self._clock, self._needs_start, around)

    async def _keep_scraping(self, client: EngineClient) -> None:
        while True:
            began = self._clock.now()
            await self._scrape(client)
            ended = self._clock.now()
            due = next_scrape(began, ended, self._settings.scrape_interval_s)
            await asyncio.sleep(due - ended)

    async def _scrape(self, client: EngineClient) -> Figures | None:
        """Read one page; None where it could not be had."""
        figures = None
        # One at a time: of two pages that overtake each other the older would look like a restart.
        async with self._scraping:
            began, part = self._clock.now(), f"engine {self._cell.id}: page"
            try:
                answer = await client.get("/metrics", self._settings.scrape_timeout_s, MAX_PAGE_BYTES)
                now = self._clock.now()
                figures = self._metrics.take(answer, now, took_s=now - began)
                self._mishaps.clear(part)
            except CallError as error:
                self._metrics.fail(str(error))
            except Exception as error:  # noqa: BLE001 - whatever a page provokes is trouble of its source
                self._metrics.fail(self._mishaps.note(part, error))
        self._changes.note(_METRICS, self._metrics.trouble)
        self._heed_sleep(figures)
        return figures

    def _heed_sleep(self, figures: Figures | None) -> None:
        if figures is None or figures.awake is None:
            return
        if figures.awake:
            self._health.awake()
            self._took(None)
        else:
            self._took(self._health.asleep(self._clock.now()))

    async def _keep_facts(self, client: EngineClient) -> None:
        while True:
            await asyncio.sleep(self._settings.facts_interval_s)
            if self._health.healthy:
                await self._refresh_facts(client)

    async def _refresh_facts(self, client: EngineClient) -> Sequence[Model]:
        """Read the models and the version; what was known before stays where they cannot be had."""
        timeout_s = self._settings.scrape_timeout_s
        trouble = ""
        try:
            self._models = await facts.read_models(client, timeout_s)
            self._version = await facts.read_version(client, timeout_s) or self._version
        except CallError as error:
            trouble = str(error)
        self._changes.note(_FACTS, trouble)
        return self._models


def next_scrape(began: float, ended: float, interval_s: float) -> float:
    """When to ask for the page again that was asked for at `began` and taken in at `ended`.

    Showing it keeps an engine from its requests, so one that is slow is asked for at most half of
    the time. All others are asked at the same moments, between two rounds of probes.
    """
    return max(next_due(began, interval_s, SCRAPE_OFFSET_S), ended + (ended - began))
