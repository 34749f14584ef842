"""The exporter's thread: a call that never comes back holds up neither the loop nor the exit."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from headrace_agent.collectors.hardware.worker import HungError, Worker


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
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
