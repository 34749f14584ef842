"""A collector at work, and patience with an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from headrace_agent.collectors.app import EngineCollector
from headrace_agent.collectors.readings import CellEvent, EngineReading, EngineState
from headrace_agent.settings import CellSettings, EngineSettings, EngineTlsSettings
from headrace_shared.clock import SystemClock

PATIENCE_S = 30.0


class Collecting:
    """A running collector, its events in order, and when (loop time, s) each came."""

    def __init__(
        self,
        url: str,
        settings: EngineSettings,
        key_file: Path | None,
        tls: EngineTlsSettings | None,
        cell: Mapping[str, object],
    ) -> None:
        self.clock = SystemClock()
        self.events: list[CellEvent] = []
        self.times: list[float] = []
        keys = {"id": "cell-1", "url": url, "api_key_file": key_file, "tls": tls, **cell}
        self.collector = EngineCollector(CellSettings.model_validate(keys), settings, self.clock, self._take)

    def _take(self, event: CellEvent) -> None:
        self.events.append(event)
        self.times.append(self.clock.now())

    def now(self) -> float:
        return self.clock.now()

    @property
    def reading(self) -> EngineReading:
        return self.collector.reading(self.clock.now())

    @property
    def kinds(self) -> list[str]:
        """The events so far, without their common prefix."""
        return [event.kind.value.removeprefix("engine_") for event in self.events]

    async def until(self, what: Callable[[], object]) -> None:
        """Wait until `what()` is true."""
        deadline = self.now() + PATIENCE_S
        while not what():
            assert self.now() < deadline, f"not within {PATIENCE_S:g} s: {self.kinds} {self.reading}"
            await asyncio.sleep(0.005)

    async def until_state(self, state: EngineState) -> None:
        await self.until(lambda: self.reading.state is state)


def fast(**changes: object) -> EngineSettings:
    """Settings for tests: everything quick, unless changed."""
    base: dict[str, object] = {
        "scrape_interval_s": 0.1,
        "probe_interval_s": 0.05,
        "hung_after_s": 4.0,
        "scrape_timeout_s": 4.0,
        "facts_interval_s": 0.5,
    }
    return EngineSettings.model_validate(base | changes)


@asynccontextmanager
async def collecting(
    url: str,
    settings: EngineSettings | None = None,
    key_file: Path | None = None,
    tls: EngineTlsSettings | None = None,
    **cell: object,
) -> AsyncIterator[Collecting]:
    """Run a collector for the length of a block; its tasks end with the block.

    `cell`: more of the cell's settings.
    """
    running = Collecting(url, settings or fast(), key_file, tls, cell)
    task = asyncio.create_task(running.collector.run(), name="collector under test")
    try:
        yield running
    finally:
        ended_by_itself = task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert not ended_by_itself, "the collector ended by itself"
