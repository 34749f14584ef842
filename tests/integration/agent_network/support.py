"""A path collector that runs for the length of a test."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from headrace_agent.collectors.network.collector import GatewayTarget, PathCollector
from headrace_agent.collectors.readings import PathReading
from headrace_agent.settings import NetworkSettings
from headrace_shared.clock import SystemClock


class Paths:
    """A running collector, read by gateway."""

    def __init__(self, method: str, gateways: Sequence[GatewayTarget], timeout_s: float) -> None:
        self.clock = SystemClock()
        settings = {"method": method, "interval_s": 0.1, "timeout_s": timeout_s}
        self.collector = PathCollector(NetworkSettings.model_validate(settings), self.clock)
        self.collector.set_gateways(gateways)

    def reading(self, gateway: str) -> PathReading:
        return {each.gateway: each for each in self.collector.readings(self.clock.now())}[gateway]

    async def until(
        self, gateway: str, wanted: Callable[[PathReading], bool], within_s: float = 30.0
    ) -> PathReading:
        began = self.clock.now()
        while not wanted(reading := self.reading(gateway)):
            assert self.clock.now() - began < within_s, f"still {reading}"
            await asyncio.sleep(0.02)
        return reading


@asynccontextmanager
async def measuring(method: str, *gateways: GatewayTarget, timeout_s: float = 0.3) -> AsyncIterator[Paths]:
    paths = Paths(method, gateways, timeout_s)
    task = asyncio.create_task(paths.collector.run(), name="paths")
    try:
        yield paths
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled(), "the collector ended by itself"


def alive(reading: PathReading) -> bool:
    return reading.rtt_ms is not None and reading.jitter_ms is not None


def dead(reading: PathReading) -> bool:
    return reading.loss == 1.0


async def not_slower_than(alone_ms: float, paths: Paths, gateways: Sequence[GatewayTarget]) -> None:
    """Fails where the gateways' median round trip, in one of ten looks a second apart, is not near what one
    of them took alone."""
    for gateway in gateways:
        await paths.until(gateway.id, lambda reading: reading.rtt_ms is not None)
    for _ in range(10):
        readings = paths.collector.readings(paths.clock.now())
        together = statistics.median(reading.rtt_ms or 0.0 for reading in readings)
        if together < max(5.0, 5 * alone_ms):
            return
        await asyncio.sleep(1.0)
    raise AssertionError(f"{alone_ms} ms alone, {together} ms among {len(gateways)}")
