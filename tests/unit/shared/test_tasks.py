"""Supervised tasks: a failure ends the program, leaving ends every task."""

from __future__ import annotations

import asyncio
import os
import signal
from unittest.mock import Mock

import pytest

from headrace_shared.tasks import Supervisor, run_until_signal, sleep_unless


async def test_a_failed_task_ends_the_wait_with_its_error() -> None:
    async def fail() -> None:
        raise RuntimeError("broken")

    async with Supervisor() as supervisor:
        supervisor.spawn("fails", fail())
        with pytest.raises(RuntimeError, match="broken"):
            await supervisor.wait(asyncio.Event())


async def test_a_failed_task_ends_the_wait_although_it_cannot_be_logged() -> None:
    """The terminal or the pipe of the log may be gone by then."""

    def broken(*_: object, **__: object) -> None:
        raise ValueError("I/O operation on closed file")

    async def fail() -> None:
        raise RuntimeError("broken")

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with Supervisor() as supervisor:
        supervisor._log = Mock(error=broken)
        supervisor.spawn("fails", fail())
        with pytest.raises(RuntimeError, match="broken"):
            async with asyncio.timeout(20):
                await supervisor.wait(asyncio.Event())


async def test_leaving_cancels_and_awaits_every_task() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async with Supervisor() as supervisor:
        for name in ("a", "b"):
            supervisor.spawn(name, work(name))
        await asyncio.sleep(0)
    assert sorted(ended) == ["a", "b"]


async def test_stop_ends_the_wait() -> None:
    stop = asyncio.Event()
    stop.set()
    async with Supervisor() as supervisor:
        supervisor.spawn("idle", asyncio.Event().wait())
        await supervisor.wait(stop)


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_asks_the_program_to_stop(which: signal.Signals) -> None:
    async def program(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), which)
        await asyncio.wait_for(stop.wait(), 5)

    await run_until_signal(program)


async def test_sleep_ends_early_when_told() -> None:
    stop = asyncio.Event()
    assert await sleep_unless(stop, 0.0) is False
    stop.set()
    assert await sleep_unless(stop, 60.0) is True
