"""The agent's own collectors, run for a few seconds, next to whatever agent runs already."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace_agent.collectors.containment import Mishaps, keep_running
from headrace_agent.collectors.network.collector import GatewayTarget
from headrace_agent.collectors.readings import CellEvent, EngineReading, HardwareReading, PathReading
from headrace_agent.service.sources import Sources, build_sources
from headrace_agent.settings import AgentSettings, CellSettings
from headrace_shared.clock import Clock
from headrace_shared.tasks import Supervisor

# Slow enough to be nothing beside the agent that may run already, and its load.
SCRAPE_S = 1.0
PROBE_S = 0.5
DCGM_S = 0.5


@dataclass(frozen=True, slots=True)
class SeenCell:
    """One cell after the look: `seen` is False where no evidence of its engine came at all.

    `cause` is that of its state; `troubles` what its engine was asked in vain, and `process_watch` which
    of its processes are watched (see EngineCollector).
    """

    cell: CellSettings
    engine: EngineReading
    hardware: HardwareReading
    seen: bool = True
    cause: str = ""
    troubles: dict[str, str] = field(default_factory=dict)
    process_watch: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything at `now`, on the clock that was given; `members` are the GPUs of this host under
    engines of others, by cell."""

    now: float
    cells: tuple[SeenCell, ...] = ()
    paths: tuple[PathReading, ...] = ()
    members: Mapping[str, HardwareReading] = field(default_factory=dict)


def quiet(settings: AgentSettings, warm_up: bool) -> AgentSettings:
    """The same settings with cadences that burden nobody, and without completions unless wanted."""
    engine, hardware = settings.engine, settings.hardware
    return settings.model_copy(
        update={
            "engine": engine.model_copy(
                update={
                    "scrape_interval_s": max(SCRAPE_S, engine.scrape_interval_s),
                    "probe_interval_s": max(PROBE_S, engine.probe_interval_s),
                    "warm_up": warm_up,
                }
            ),
            "hardware": hardware.model_copy(
                update={"dcgm_interval_s": max(DCGM_S, hardware.dcgm_interval_s)}
            ),
        }
    )


class Look:
    """The collectors that a look needs. Raises TlsError where an engine's TLS files cannot be used."""

    def __init__(self, settings: AgentSettings, gateways: Sequence[GatewayTarget], clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._mishaps = Mishaps()
        self._causes: dict[str, str] = {}
        self._sources = build_sources(settings, clock, self._note, lambda gpu, xid: None, self._mishaps)
        self._sources.paths.set_gateways(gateways)

    async def observe(self, wait_s: float) -> Observation:
        """Collect for `wait_s` seconds and tell what was seen."""
        sources = self._sources
        parts = {f"engine {cell_id}": engine.run for cell_id, engine in sources.engines.items()}
        parts |= {"hardware": sources.hardware.run, "paths": sources.paths.run}
        async with Supervisor() as tasks:
            for part, run in parts.items():
                tasks.spawn(part, keep_running(part, run, self._clock, self._mishaps))
            await asyncio.sleep(wait_s)
            return _take(self._settings, sources, self._causes, self._clock.now())

    def _note(self, event: CellEvent) -> None:
        self._causes[event.cell_id] = event.cause


def _take(settings: AgentSettings, sources: Sources, causes: dict[str, str], now: float) -> Observation:
    cells = tuple(_seen(cell, sources, causes.get(cell.id, ""), now) for cell in settings.cells)
    members = {each.cell: sources.hardware.reading(each.gpus, now) for each in settings.members}
    return Observation(now, cells, tuple(sources.paths.readings(now)), members)


def _seen(cell: CellSettings, sources: Sources, cause: str, now: float) -> SeenCell:
    engine = sources.engines[cell.id]
    return SeenCell(
        cell=cell,
        engine=engine.reading(now),
        hardware=sources.hardware.reading(cell.gpus, now),
        seen=engine.first_seen.is_set(),
        cause=cause,
        troubles=dict(engine.troubles()),
        process_watch=engine.process_watch,
    )
