"""The collector against a real HTTP exporter: every way to fail, and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from headrace_agent.collectors.hardware.collector import HardwareCollector
from headrace_agent.collectors.readings import HardwareReading, HardwareSource, Status
from headrace_agent.settings import HardwareSettings
from headrace_shared.clock import SystemClock
from tests.integration.agent_hardware.exporter_fake import UUID, FakeExporter, serving
from tests.unit.agent.collectors.hardware.nvml_fake import FakeNvml, FakeReader

TIMEOUT_S = 0.4
# An exporter that answers does so within this on a busy machine, too.
PATIENT_S = 10.0
WITHIN_S = 30.0


class Running:
    """A collector that runs, and its events."""

    def __init__(
        self,
        url: str | None,
        nvml: FakeNvml | None = None,
        interval_s: float = 0.1,
        timeout_s: float = PATIENT_S,
    ) -> None:
        self.clock = SystemClock()
        self.events: list[tuple[str, int]] = []
        settings = HardwareSettings(
            dcgm_url=url,
            dcgm_interval_s=interval_s,
            dcgm_timeout_s=timeout_s,
            nvml="off" if nvml is None else "auto",
            nvml_interval_s=0.1,
        )
        self.collector = HardwareCollector(
            settings,
            self.clock,
            lambda *event: self.events.append(event),
            nvml=None if nvml is None else FakeReader(nvml),
        )

    def reading(self, ref: str | int = 0) -> HardwareReading:
        return self.collector.reading((ref,), self.clock.now())

    async def until(self, wanted: Callable[[HardwareReading], bool], within_s: float = WITHIN_S) -> float:
        """Wait for a reading; the seconds it took."""
        began = self.clock.now()
        while not wanted(self.reading()):
            assert self.clock.now() - began < within_s, f"still {self.reading()}"
            await asyncio.sleep(0.01)
        return self.clock.now() - began

    async def until_source(self, source: HardwareSource, within_s: float = WITHIN_S) -> float:
        return await self.until(lambda reading: reading.source is source, within_s)


@asynccontextmanager
async def running(
    url: str | None, nvml: FakeNvml | None = None, interval_s: float = 0.1, timeout_s: float = PATIENT_S
) -> AsyncIterator[Running]:
    run = Running(url, nvml, interval_s, timeout_s)
    task = asyncio.create_task(run.collector.run(), name="hardware collector")
    try:
        yield run
    finally:
        task.cancel()
        began = run.clock.now()
        await asyncio.gather(task, return_exceptions=True)
        assert run.clock.now() - began < 8.0, "stopping waits for an exporter"
        assert task.cancelled(), "the collector ended by itself"


@asynccontextmanager
async def bench(
    nvml: FakeNvml | None = None, timeout_s: float = PATIENT_S
) -> AsyncIterator[tuple[FakeExporter, Running]]:
    url = "http://127.0.0.1:{}"
    async with (
        serving() as exporter,
        running(url.format(exporter.port), nvml, timeout_s=timeout_s) as run,
    ):
        await run.until_source(HardwareSource.DCGM)
        yield exporter, run


async def test_the_page_is_found_where_the_url_names_only_the_host() -> None:
    async with bench() as (_, run):
        reading = run.reading(UUID[:20])
        assert reading.signals == {"gpu_util": 0.91, "compute_active": 0.25}
        assert [each.uuid for each in reading.gpus] == [UUID]
        assert reading.sources[0].status is Status.OK


@pytest.mark.parametrize(
    ("mode", "status", "said"),
    [
        ("500", Status.FAILED, "HTTP 500"),
        ("empty", Status.NO_DATA, "no DCGM_FI_ metrics"),
        ("vllm", Status.NO_DATA, "is it a DCGM exporter's page"),
        ("html", Status.FAILED, "HTML"),
        ("latin1", Status.FAILED, "not UTF-8"),
        ("cut", Status.FAILED, "cut short"),
        ("short", Status.FAILED, "cut short"),
        ("huge", Status.FAILED, "larger than 4 MiB"),
        ("hang", Status.FAILED, "no answer within 0.4 s"),
        ("slow", Status.FAILED, "within"),
        ("redirect", Status.FAILED, "HTTP 302"),
        ("gzip", Status.FAILED, "compressed (gzip)"),
    ],
)
async def test_a_page_that_cannot_be_used_is_contained_named_and_mended(
    mode: str, status: Status, said: str
) -> None:
    async with bench(timeout_s=TIMEOUT_S) as (exporter, run):
        exporter.mode = mode
        # On a busy machine an answer may come too late at first.
        await run.until(lambda reading: said in reading.sources[0].detail)
        reading = run.reading()
        assert reading.source is HardwareSource.NONE
        assert reading.signals == {}
        assert reading.sources[0].status is status
        exporter.mode = "ok"
        await exporter.stop()  # ends what still hangs
        await exporter.start()
        await run.until_source(HardwareSource.DCGM)


async def test_a_killed_exporter_puts_nvml_in_force_before_its_figures_are_stale() -> None:
    async with bench(FakeNvml()) as (exporter, run):
        await run.until(lambda reading: reading.sources[1].status is Status.OK)
        await exporter.stop()
        print(f"in force after {await run.until_source(HardwareSource.NVML):.2f} s")
        assert run.reading().sources[0].status is Status.FAILED
        assert run.reading().signals["gpu_util"] == 0.40
        assert "refused" in run.reading().sources[0].detail
        await exporter.start()
        await run.until_source(HardwareSource.DCGM)


async def test_a_killed_exporter_is_noticed_before_the_next_read_is_due() -> None:
    async with serving() as exporter, running(f"http://127.0.0.1:{exporter.port}", interval_s=30.0) as run:
        await run.until_source(HardwareSource.DCGM)
        await exporter.stop()
        await run.until_source(HardwareSource.NONE)
        assert run.reading().sources[0].status is Status.FAILED


async def test_an_exporter_that_ends_idle_connections_is_not_asked_all_the_time() -> None:
    async with (
        serving(keep_alive_s=0.05) as exporter,
        running(f"http://127.0.0.1:{exporter.port}", interval_s=0.5) as run,
    ):
        await run.until_source(HardwareSource.DCGM)
        before = exporter.requests
        await asyncio.sleep(2.0)
        # Two a time: the read that is due, and the one when the connection ends after it.
        assert 2 <= exporter.requests - before <= 10
        assert run.reading().sources[0].status is Status.OK


async def test_figures_that_stand_still_are_stale_after_two_seconds_and_not_before() -> None:
    async with bench() as (exporter, run):
        await asyncio.sleep(1.0)  # long enough to learn the interval
        exporter.mode = "still"
        took = await run.until_source(HardwareSource.NONE)
        # They may have moved last a little before, and stand for longer unseen on a busy machine.
        assert 1.2 <= took <= 8.0
        assert run.reading().sources[0].status is Status.STALE
        exporter.mode = "ok"
        await run.until_source(HardwareSource.DCGM)


async def test_a_new_xid_is_told_while_running() -> None:
    async with bench() as (exporter, run):
        exporter.xid = 79
        await run.until(lambda reading: reading.health is not None and reading.health.last_xid == 79)
        assert run.events == [(UUID, 79)]


async def test_an_unreachable_exporter_from_the_start_is_a_failure_in_words() -> None:
    async with running("http://127.0.0.1:1") as run:
        await run.until(lambda reading: reading.sources[0].status is Status.FAILED)
        assert "is the exporter running?" in run.reading().sources[0].detail


async def test_a_password_in_the_exporters_address_is_used_and_told_to_nobody() -> None:
    async with serving() as fake, running(f"http://me:secret@127.0.0.1:{fake.port}/metrics") as run:
        await run.until_source(HardwareSource.DCGM)
        fake.mode = "500"
        await run.until(lambda reading: reading.sources[0].status is Status.FAILED)
        detail = run.reading().sources[0].detail
    assert fake.authorization == "Basic bWU6c2VjcmV0"
    assert "HTTP 500" in detail
    assert "secret" not in detail
