"""The collectors an agent runs, behind the few methods that the rest of it uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace_agent.collectors.app.engine import EngineCollector
from headrace_agent.collectors.app.health.rounds import Rounds
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

    def reading(self, now: float) -> EngineReading: ...

    def tallies(self) -> Mapping[str, Tally]: ...


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


def build_sources(
    settings: AgentSettings, clock: Clock, on_event: OnEvent, on_xid: OnXid, mishaps: Mishaps
) -> Sources:
    """The real collectors; nothing runs yet."""
    rounds = Rounds(settings.engine.probe_interval_s, clock)
    return Sources(
        engines={
            cell.id: EngineCollector(cell, settings.engine, clock, on_event, mishaps, rounds)
            for cell in settings.cells
        },
        hardware=HardwareCollector(settings.hardware, clock, on_xid, mishaps=mishaps),
        paths=PathCollector(settings.network, clock, mishaps=mishaps),
    )
