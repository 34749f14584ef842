"""Both sources at once, as on a real host: an exporter over HTTP, NVML in its own process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from headrace_agent.collectors.hardware.collector import HardwareCollector
from headrace_agent.collectors.readings import HardwareReading, HardwareSource, Status
from headrace_agent.settings import HardwareSettings
from headrace_shared.clock import SystemClock
from tests.integration.agent_hardware.exporter_fake import FakeExporter, serving
from tests.integration.agent_hardware.nvml_stub import Stub

DCGM, NVML, NONE = HardwareSource.DCGM, HardwareSource.NVML, HardwareSource.NONE
WITHIN_S = 30.0


class Bench:
    """A collector with the settings that an operator gets who sets none."""

    def __init__(self, exporter: FakeExporter) -> None:
        self.exporter = exporter
        self.clock = SystemClock()
        self.events: list[tuple[str, int]] = []
        url = f"http://127.0.0.1:{exporter.port}"
        self.collector = HardwareCollector(
            HardwareSettings(dcgm_url=url), self.clock, lambda *event: self.events.append(event)
        )

    def reading(self) -> HardwareReading:
        return self.collector.reading((0,), self.clock.now())

    async def until(self, source: HardwareSource) -> float:
        """Wait until a source is in force; the seconds it took."""
        return await self.until_true(lambda: self.reading().source is source)

    async def until_both(self) -> None:
        await self.until_true(lambda: all(each.status is Status.OK for each in self.reading().sources))

    async def until_true(self, wanted: Callable[[], bool]) -> float:
        """Wait for a condition; the seconds it took."""
        began = self.clock.now()
        while not wanted():
            assert self.clock.now() - began < WITHIN_S, f"still {self.reading()}"
            await asyncio.sleep(0.01)
        return self.clock.now() - began


@pytest.fixture
async def bench(stub: Stub) -> AsyncIterator[Bench]:
    async with serving() as exporter, _running(Bench(exporter)) as bench:
        exporter.uuid = "GPU-stub-0"
        await bench.until_both()
        assert bench.reading().source is DCGM
        yield bench


@asynccontextmanager
async def _running(bench: Bench) -> AsyncIterator[Bench]:
    task = asyncio.create_task(bench.collector.run(), name="hardware collector")
    try:
        yield bench
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_exporters_end_puts_nvml_in_force_and_its_return_takes_over_again(bench: Bench) -> None:
    for _ in range(2):
        await bench.exporter.stop()
        print(f"in force after {await bench.until(NVML):.2f} s")
        # Its end is noticed: nobody waits until figures that are not renewed are stale.
        assert bench.reading().sources[0].status is Status.FAILED
        assert bench.reading().signals["memory_bw_util"] == 0.17
        await bench.exporter.start()
        await bench.until(DCGM)
        assert "memory_bw_util" not in bench.reading().signals, "the page of this exporter has none"


async def test_without_either_there_are_no_figures_and_each_one_that_returns_gives_some(
    bench: Bench, stub: Stub
) -> None:
    stub.fail("nvmlInitWithFlags", 9)
    stub.fail("nvmlDeviceGetPowerUsage", 1)
    await bench.exporter.stop()
    await bench.until(NONE)
    assert bench.reading().signals == {}
    stub.mend()
    await bench.until(NVML)
    await bench.exporter.start()
    await bench.until(DCGM)


async def test_an_xid_is_one_event_whichever_source_tells_it_again(bench: Bench, stub: Stub) -> None:
    def last_xid() -> int | None:
        health = bench.reading().health
        return None if health is None else health.last_xid

    stub.fire(79)
    await bench.until_true(lambda: bool(bench.events))
    assert bench.events == [("GPU-stub-0", 79)]
    # Before the page has it.
    await bench.until_true(lambda: last_xid() == 79)
    bench.exporter.xid = 79
    asked = bench.exporter.requests
    await bench.until_true(lambda: bench.exporter.requests > asked + 3)
    assert bench.events == [("GPU-stub-0", 79)]
    assert last_xid() == 79


async def test_nvmls_loss_of_a_gpu_counts_while_the_exporter_still_shows_it(bench: Bench, stub: Stub) -> None:
    def lost() -> bool:
        health = bench.reading().health
        return health is not None and health.gpu_lost

    assert not lost()
    stub.fail("nvmlDeviceGetPowerUsage", 15)
    await bench.until_true(lost)
    assert bench.reading().source is DCGM
