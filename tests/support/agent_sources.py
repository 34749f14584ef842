"""Collectors whose readings a test sets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.network.collector import GatewayTarget
from headrace_agent.collectors.readings import (
    EngineReading,
    EngineState,
    HardwareReading,
    PathReading,
    SourceReading,
    Status,
    Tally,
)
from headrace_agent.service.sources import OnEvent, OnXid, Sources
from headrace_agent.settings import AgentSettings
from headrace_shared.clock import Clock


class FakeEngine:
    """An engine that serves, seen from the start."""

    def __init__(self) -> None:
        self.first_seen = asyncio.Event()
        self.first_seen.set()
        self.now = EngineReading(EngineState.SERVING, in_flight=1)

    @property
    def state(self) -> EngineState | None:
        return self.now.state

    async def run(self) -> None:
        await asyncio.Event().wait()

    def reading(self, now: float) -> EngineReading:
        return self.now

    def tallies(self) -> dict[str, Tally]:
        return {"engine": Tally(5, 2)}

    def troubles(self) -> dict[str, str]:
        return {}

    @property
    def process_watch(self) -> str:
        return "watching 1 process"

    def read(self, in_flight: int | None, read_at: float) -> None:
        """A fresh page of the engine."""
        source = SourceReading("engine", Status.OK, read_at)
        self.now = EngineReading(EngineState.SERVING, in_flight=in_flight, source=source)


class FakeHardware:
    """GPUs by the references that cells use; none at first."""

    def __init__(self) -> None:
        self.now: dict[tuple[str | int, ...], HardwareReading] = {}

    async def run(self) -> None:
        await asyncio.Event().wait()

    def reading(self, gpus: tuple[str | int, ...], now: float) -> HardwareReading:
        return self.now.get(gpus, HardwareReading())

    def tallies(self) -> dict[str, Tally]:
        return {"dcgm": Tally(7, 1)}


class FakePaths:
    """Paths without figures; `gateways` is what was last asked for."""

    def __init__(self) -> None:
        self.gateways: list[GatewayTarget] = []

    async def run(self) -> None:
        await asyncio.Event().wait()

    def set_gateways(self, gateways: Sequence[GatewayTarget]) -> None:
        self.gateways = list(gateways)

    def readings(self, now: float) -> tuple[PathReading, ...]:
        return tuple(PathReading(each.id) for each in self.gateways)


class Fakes:
    """All of an agent's collectors; pass `build` to the Agent."""

    def __init__(self, *cells: str) -> None:
        self.engines = {cell: FakeEngine() for cell in cells}
        self.hardware = FakeHardware()
        self.paths = FakePaths()
        self.on_event: OnEvent = lambda event: None
        self.on_xid: OnXid = lambda uuid, xid: None

    def build(
        self, settings: AgentSettings, clock: Clock, on_event: OnEvent, on_xid: OnXid, mishaps: Mishaps
    ) -> Sources:
        self.on_event, self.on_xid = on_event, on_xid
        return Sources(self.engines, self.hardware, self.paths)
