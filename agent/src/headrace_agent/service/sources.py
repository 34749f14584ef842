"""The collectors an agent runs, behind the few methods that the rest of it uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from headrace_agent.collectors.app.engine import EngineCollector
from headrace_agent.collectors.app.health.rounds import Rounds
from headrace_agent.collectors.app.processes.scanner import ProcessScanner
from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.hardware.collector import HardwareCollector
from headrace_agent.collectors.network.collector import GatewayTarget, PathCollector
from headrace_agent.collectors.readings import (
    CellEvent,
    EngineReading,
    EngineState,
    HardwareReading,
    PathReading,
    Tally,
)
from headrace_agent.settings import AgentSettings
from headrace_shared.clock import Clock


class Engine(Protocol):
    """One engine's collector. Until `first_seen` is set its reading rests on no evidence."""

    @property
    def first_seen(self) -> asyncio.Event: ...

    @property
    def state(self) -> EngineState | None: ...

    async def run(self) -> None: ...

    def retune(self, fresh: Self) -> None:
        """Take the settings that `fresh` was built with, and keep all that is known of the engine.
        Called while `run` does not run."""
        ...

    def reading(self, now: float) -> EngineReading: ...

    def tallies(self) -> Mapping[str, Tally]: ...

    def troubles(self) -> Mapping[str, str]: ...

    @property
    def process_watch(self) -> str: ...


class Hardware(Protocol):
    """The collector of all GPUs of this host."""

    async def run(self) -> None: ...

    def reading(self, gpus: tuple[str | int, ...], now: float) -> HardwareReading: ...

    def tallies(self) -> Mapping[str, Tally]: ...


class Paths(Protocol):
    """The collector of all paths to gateways."""

    async def run(self) -> None: ...

    def set_gateways(self, gateways: Sequence[GatewayTarget]) -> None: ...

    def readings(self, now: float) -> tuple[PathReading, ...]: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """All of an agent's collectors; `engines` by cell id."""

    engines: Mapping[str, Engine]
    hardware: Hardware
    paths: Paths


OnEvent = Callable[[CellEvent], None]
OnXid = Callable[[str, int], None]
BuildSources = Callable[[AgentSettings, Clock, OnEvent, OnXid, Mishaps], Sources]


class SourceBuilder:
    """Builds the real collectors; nothing of them runs yet.

    The engines of all that one builder built keep to one round of probes, as long as their interval
    is the same, and look at the host's processes together: an agent that was reloaded ten times wakes
    no more often than a fresh one.
    """

    def __init__(self) -> None:
        self._scanner: ProcessScanner | None = None
        self._rounds: Rounds | None = None
        self._interval_s = 0.0

    def __call__(
        self, settings: AgentSettings, clock: Clock, on_event: OnEvent, on_xid: OnXid, mishaps: Mishaps
    ) -> Sources:
        rounds = self._round(settings.engine.probe_interval_s, clock)
        scanner = self._scanner = self._scanner or ProcessScanner(clock)
        # A path belongs to the host that gateways reach: without a cell there is none to measure.
        network = (
            settings.network if settings.cells else settings.network.model_copy(update={"method": "off"})
        )
        return Sources(
            engines={
                cell.id: EngineCollector(cell, settings.engine, clock, on_event, mishaps, rounds, scanner)
                for cell in settings.cells
            },
            hardware=HardwareCollector(settings.hardware, clock, on_xid, mishaps=mishaps),
            paths=PathCollector(network, clock, mishaps=mishaps),
        )

    def _round(self, interval_s: float, clock: Clock) -> Rounds:
        if self._rounds is None or interval_s != self._interval_s:
            self._rounds, self._interval_s = Rounds(interval_s, clock), interval_s
        return self._rounds


def build_sources(
    settings: AgentSettings, clock: Clock, on_event: OnEvent, on_xid: OnXid, mishaps: Mishaps
) -> Sources:
    """The real collectors; nothing runs yet."""
    return SourceBuilder()(settings, clock, on_event, on_xid, mishaps)
