"""One engine, watched: its state, its signals and its facts."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Self

from headrace_agent.collectors import moments
from headrace_agent.collectors.app import facts
from headrace_agent.collectors.app.changes import ChangeLog
from headrace_agent.collectors.app.endpoints import ENDPOINTS, HealthPath
from headrace_agent.collectors.app.health.deep import DeepCheck
from headrace_agent.collectors.app.health.probe import HealthProbe
from headrace_agent.collectors.app.health.rounds import Rounds
from headrace_agent.collectors.app.health.start import Starter, Surroundings
from headrace_agent.collectors.app.health.state import Change, EngineHealth
from headrace_agent.collectors.app.health.stuck import StuckCheck
from headrace_agent.collectors.app.health.vitals import Vitals
from headrace_agent.collectors.app.health.watch import ConnectionWatch
from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.dial import Dialer
from headrace_agent.collectors.app.http.errors import CallError
from headrace_agent.collectors.app.http.trust import engine_trust
from headrace_agent.collectors.app.pages.figures import Figures
from headrace_agent.collectors.app.pages.metrics import NAME, MetricsSource
from headrace_agent.collectors.app.pages.paths import origin, page_path
from headrace_agent.collectors.app.processes.scanner import ProcessScanner
from headrace_agent.collectors.containment import Mishaps, keep_running
from headrace_agent.collectors.exposition import MAX_PAGE_BYTES
from headrace_agent.collectors.grid import AWAKE_S, BEFORE_BEAT_S, STEP_S, next_due
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

# Until the next round of probes.
HOLD_S = STEP_S - AWAKE_S
_WARM_UP = "warm-up"
_METRICS = "metrics page"
_FACTS = "model list"
_ASKED = {NAME: _METRICS, "models": _FACTS, "warm_up": _WARM_UP}


class EngineCollector:
    """Collects from one engine until cancelled; its failures stay here.

    What the engine does wrong is trouble of its source, and what goes wrong unexpectedly is a
    mishap of the one job that it broke, which is started again.

    Collectors that share `rounds` probe together, and those that share `scanner` look at the host's
    processes together.

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
        scanner: ProcessScanner | None = None,
    ) -> None:
        """Raises headrace_shared.tls.TlsError where the cell's TLS files cannot be used."""
        self._cell = cell
        self._settings = settings
        self._clock = clock
        self._on_event = on_event
        self._mishaps = mishaps if mishaps is not None else Mishaps()
        self._rounds = rounds if rounds is not None else Rounds(settings.probe_interval_s, clock)
        self._scanner = scanner if scanner is not None else ProcessScanner(clock)
        self._trust = engine_trust(cell)
        self._health = EngineHealth(settings.hung_after_s)
        self._probe: HealthProbe | None = None
        self._client: EngineClient | None = None
        self._deep: DeepCheck | None = None
        self._vitals = self._watched()
        self._metrics = MetricsSource(settings, cell.kind, page_path(cell.metrics_url))
        self._paths = HealthPath(lambda: self._kind)
        self._scraping = asyncio.Lock()
        self._warmed_at = -math.inf
        self._needs_start = asyncio.Event()
        self._known = EngineFacts()
        self._told = (self._known, self._known)
        self._changes = ChangeLog(cell.id)
        self._log = log.get("engine").bind(cell=cell.id)
        self.first_seen = asyncio.Event()

    async def run(self) -> None:
        """Watch the engine until cancelled; every connection is closed then."""
        dialer = Dialer(self._cell.url, self._clock, self._trust)
        client = self._client = EngineClient(dialer, self._cell.url, self._cell.api_key_file)
        health, settings, clock, vitals = self._health, self._settings, self._clock, self._vitals
        patience_s = settings.hung_after_s
        pages = self._pages_client(client)
        self._probe = HealthProbe(
            client,
            health,
            self._rounds,
            patience_s,
            clock,
            self._took,
            path=self._paths.current,
            elsewhere=self._paths.elsewhere,
        )
        starter = self._starter(client, pages)
        jobs = {
            "probe": self._probe.run,
            "watch": ConnectionWatch(dialer, clock, vitals.gone, vitals.connected, vitals.let_go).run,
            "processes": vitals.processes.run,
            "scrape": lambda: self._keep_scraping(pages),
            "start": starter.run,
            "facts": lambda: self._keep_facts(client),
        }
        if settings.warm_up:
            frozen = self._metrics_frozen
            self._deep = DeepCheck(client, health, self._deep_path, clock, self._took)
            jobs["deep health"] = self._deep.run
            jobs["stuck"] = StuckCheck(health, frozen, starter.ask, self._took, clock).run
        try:
            async with asyncio.TaskGroup() as group:
                for name, job in jobs.items():
                    part = f"engine {self._cell.id}: {name}"
                    group.create_task(keep_running(part, job, clock, self._mishaps), name=part)
        finally:
            client.close()
            pages.close()

    def retune(self, fresh: Self) -> None:
        """Take over the settings that `fresh` was built with; all that is known of the engine stays.

        Call it while `run` does not run.
        """
        moved = fresh._cell.url != self._cell.url
        self._cell, self._settings, self._rounds = fresh._cell, fresh._settings, fresh._rounds
        self._trust, self._scanner = fresh._trust, fresh._scanner
        if moved:
            self._vitals = self._watched()
        self._health.bear(fresh._settings.hung_after_s)
        self._metrics.retune(fresh._settings)

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
            missing=self._metrics.missing,
            work=None if down else self._metrics.work(now),
        )

    def tallies(self) -> Mapping[str, Tally]:
        """What was asked of the engine (`engine` is its metrics page) -> how often."""
        tries, failures = self._changes.tries, self._changes.failures
        return {name: Tally(tries[what], failures[what]) for name, what in _ASKED.items()}

    def troubles(self) -> Mapping[str, str]:
        """What was last asked of the engine in vain (`engine` is its metrics page) -> why."""
        last = {name: self._changes.last(what) for name, what in _ASKED.items()}
        return {name: why for name, why in last.items() if why}

    @property
    def process_watch(self) -> str:
        """Which of the engine's processes are watched, or why they cannot be and what to do."""
        return self._vitals.processes.condition

    @property
    def _facts(self) -> EngineFacts:
        # A path that no kind stands behind and that nothing has answered on is a guess.
        found = bool(self._kind) or self._health.healthy
        kind, path = self._kind, self._paths.current if found else ""
        # Asked for with every beat, and different once in a while.
        known, told = self._told
        if known is not self._known or (told.kind, told.health_path) != (kind, path):
            told = replace(self._known, kind=kind, health_path=path)
            self._told = self._known, told
        return told

    @property
    def _kind(self) -> str:
        """What the settings or the page say, else what the engine calls itself; "" for unknown."""
        return self._metrics.kind or self._known.kind

    def _pages_client(self, client: EngineClient) -> EngineClient:
        """What the metrics page is read with: the engine's own client, unless the page is elsewhere.

        The engine's key is for the engine alone.
        """
        if self._cell.metrics_url is None:
            return client
        url = origin(self._cell.metrics_url)
        return EngineClient(Dialer(url, self._clock, self._trust), url)

    def _source(self, state: EngineState, now: float) -> SourceReading:
        """The metrics source; its detail also names orphans, and while the engine loads what keeps it from
        serving."""
        source = self._metrics.reading(now)
        more = [self._vitals.processes.orphans()]
        if state is EngineState.LOADING:
            more += [f"{what}: {last}" for what in (_FACTS, _WARM_UP) if (last := self._changes.last(what))]
        # Orphans come first: what is too long is cut at its end.
        detail = "; ".join(filter(None, [more[0], source.detail, *more[1:]]))
        return source if detail == source.detail else replace(source, detail=detail)

    def _took(self, change: Change | None) -> None:
        if change is not None:
            say = self._log.info if change.state is EngineState.SERVING else self._log.warning
            cause = self._vitals.explain(change)
            say("engine state", state=change.state.value, cause=cause)
            kind = EventKind[f"ENGINE_{change.state.name}"]
            self._on_event(CellEvent(self._cell.id, kind, cause))
            self.first_seen.set()
            self._vitals.processes.nudge()
        if self._health.awaiting:
            self._needs_start.set()

    def _hurry(self) -> None:
        if self._probe is not None:
            self._probe.hurry()
        if self._deep is not None:
            self._deep.hurry()

    def _redial(self) -> None:
        if self._client is not None and self._probe is not None:
            self._client.close()
            self._probe.redial()

    def _watched(self) -> Vitals:
        return Vitals(
            self._cell, self._health, self._scanner, self._clock, self._took, self._hurry, self._redial
        )

    def _metrics_frozen(self) -> float | None:
        return self._metrics.frozen_since

    def _starter(self, client: EngineClient, pages: EngineClient) -> Starter:
        around = Surroundings(
            scrape=lambda: self._scrape(pages),
            read_models=lambda: self._refresh_facts(client),
            kind=lambda: self._kind,
            took=self._took,
            warmed=self._warmed,
            note=lambda trouble: self._changes.note(_WARM_UP, trouble),
        )
        return Starter(client, self._health, self._settings, self._clock, self._needs_start, around)

    def _warmed(self) -> None:
        self._warmed_at = self._clock.now()
        self._metrics.restart_windows()

    async def _keep_scraping(self, client: EngineClient) -> None:
        while True:
            began = self._clock.now()
            await self._scrape(client, hold(self._settings.scrape_interval_s))
            ended = self._clock.now()
            due = next_scrape(began, ended, self._settings.scrape_interval_s)
            await moments.sleep(due - ended)

    async def _scrape(self, client: EngineClient, hold_s: float = 0.0) -> Figures | None:
        """Read one page; None where it could not be had."""
        figures = None
        # One at a time: of two pages that overtake each other the older would look like a restart.
        async with self._scraping:
            began, part = self._clock.now(), f"engine {self._cell.id}: page"
            try:
                timeout_s = self._settings.scrape_timeout_s
                answer = await client.get(self._metrics.path, timeout_s, MAX_PAGE_BYTES, hold_s)
                now = self._clock.now()
                figures = self._metrics.take(answer, now, took_s=now - began)
                if began <= self._warmed_at:  # a page from before the warm-up's answer is no base after it
                    self._metrics.restart_windows()
                self._mishaps.clear(part)
            except CallError as error:
                self._metrics.fail(str(error))
            except Exception as error:  # noqa: BLE001 - whatever a page provokes is trouble of its source
                self._metrics.fail(self._mishaps.note(part, error))
        self._changes.note(_METRICS, self._metrics.trouble)
        self._heed_kind()
        if figures is not None:
            self._vitals.paged(figures.started_at)
        self._heed_sleep(figures)
        return figures

    def _deep_path(self) -> str:
        return ENDPOINTS[self._kind].deep_health

    def _heed_kind(self) -> None:
        """Ask where engines of this kind say how they are."""
        if self._probe is not None:
            self._probe.aim(self._paths.current)

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
            found = await facts.read(client, self._metrics.kind, timeout_s)
            self._known = replace(found, version=found.version or self._known.version)
        except CallError as error:
            trouble = str(error)
        self._changes.note(_FACTS, trouble)
        self._heed_kind()
        return self._known.models


def hold(interval_s: float) -> float:
    """How long a page may wait to be taken in: those of all engines of a host are taken in together.

    One after the other they cost half of what each costs by itself.
    """
    return min(HOLD_S, interval_s / 5)


def next_scrape(began: float, ended: float, interval_s: float) -> float:
    """When to ask for the page again that was asked for at `began` and taken in at `ended`.

    Showing it keeps an engine from its requests, so one that is slow is asked for at most half of
    the time. All others are asked at the same moments, between two rounds of probes.
    """
    return max(next_due(began, interval_s, BEFORE_BEAT_S), ended + (ended - began))
