"""A call that never comes back costs its own source and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from headrace_agent.collectors.hardware import collector
from headrace_agent.collectors.hardware.worker import HungError, Worker
from headrace_agent.collectors.readings import HardwareSource, Status
from headrace_shared.clock import SystemClock
from tests.integration.agent_hardware.exporter_fake import serving
from tests.integration.agent_hardware.test_dcgm_exporter import running
from tests.unit.agent.collectors.hardware.nvml_fake import FakeNvml


def _wait(release: threading.Event) -> None:
    release.wait(20)


async def test_nvml_that_hangs_fails_alone_and_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "NVML_TIMEOUT_S", 0.2)
    api, release = FakeNvml(), threading.Event()
    async with serving() as exporter, running(f"http://127.0.0.1:{exporter.port}", api) as run:
        await run.until(lambda reading: reading.sources[1].status is Status.OK)
        api.hooks["nvmlDeviceGetTemperatureV"] = lambda: _wait(release)
        await run.until(lambda reading: reading.sources[1].status is Status.FAILED)
        assert run.reading().source is HardwareSource.DCGM
        before = exporter.requests
        await asyncio.sleep(0.5)
        assert exporter.requests >= before + 2, "the exporter is read as before"
        release.set()
        await run.until(lambda reading: reading.sources[1].status is Status.OK)


async def test_stopping_does_not_wait_for_a_call_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "NVML_TIMEOUT_S", 0.1)
    api, release = FakeNvml(), threading.Event()
    api.hooks["nvmlInit"] = lambda: _wait(release)
    clock = SystemClock()
    async with running(None, api) as run:
        await run.until(lambda reading: reading.sources[0].status is Status.FAILED)
        began = clock.now()
    assert clock.now() - began < 1.0
    release.set()


async def test_a_busy_worker_refuses_at_once_and_serves_again_later() -> None:
    worker, release = Worker("test"), threading.Event()
    with pytest.raises(HungError, match="no answer within"):
        await worker.call(lambda: release.wait(10), 0.05)
    with pytest.raises(HungError, match="has not come back"):
        await worker.call(lambda: None, 5.0)
    release.set()
    for _ in range(500):
        try:
            assert await worker.call(lambda: 7, 1.0) == 7
            break
        except HungError:
            await asyncio.sleep(0.01)
    else:
        pytest.fail("the worker did not come back")
    await worker.close(lambda: None, 1.0)


async def test_what_a_call_raises_is_raised_where_it_was_made() -> None:
    worker, closed = Worker("test"), threading.Event()

    def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await worker.call(fail, 1.0)
    await worker.close(closed.set, 1.0)
    assert closed.is_set()


def test_a_process_ends_although_a_call_hangs() -> None:
    program = """
import asyncio, threading
from headrace_agent.collectors.hardware.worker import HungError, Worker

async def main():
    worker = Worker("hangs")
    try:
        await worker.call(threading.Event().wait, 0.1)
    except HungError:
        await worker.close(lambda: None, 0.1)

asyncio.run(main())
print("ended")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
