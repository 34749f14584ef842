"""Named, supervised, awaited tasks, and programs that end in order on SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from headrace_shared import log

STDOUT = 1
STDERR = 2


class Supervisor:
    """Owns a program's long-running tasks.

    A task that ends with an exception ends the program: `wait()` raises it, so that systemd or
    an orchestrator restarts a whole process instead of half of one. Leaving the context cancels
    and awaits every task.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed: asyncio.Future[None] | None = None
        self._log = log.get("tasks")

    async def __aenter__(self) -> Self:
        self._failed = asyncio.get_running_loop().create_future()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cancel_all()
        if self._failed is not None and self._failed.done():
            self._failed.exception()  # read it, or asyncio reports it as never retrieved

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start `coroutine` as a supervised task called `name`."""
        task = asyncio.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)
        # Last: a log that cannot be written must not keep the program from ending.
        self._log.error("task failed", task=task.get_name(), error=repr(error))

    async def wait(self, stop: asyncio.Event) -> None:
        """Return when `stop` is set; raise what a task raised if one fails first."""
        assert self._failed is not None, "use the supervisor as a context"
        stopped: asyncio.Future[Any] = asyncio.create_task(stop.wait(), name="wait for stop")
        try:
            await asyncio.wait([stopped, self._failed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if self._failed.done():
            self._failed.result()

    async def cancel_all(self) -> None:
        """Cancel every task and wait until each has ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_until_signal(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `main(stop)`, where SIGTERM or SIGINT sets `stop`.

    `main` closes what it opened and returns. A second signal is left to the default handler,
    so that a program stuck in its own shutdown can still be ended.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def asked() -> None:
        stop.set()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, asked)
    await main(stop)


def hold_hangups() -> None:
    """Keep every SIGHUP waiting for `on_hangup`: left alone, one that comes early ends the program."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def on_hangup(callback: Callable[[], None]) -> None:
    """Call `callback` in the running event loop at each SIGHUP, one that was held included.

    Several that come together may be one call.
    """
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, callback)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def take_hangup(reload: asyncio.Event, stop: asyncio.Event, had_terminal: bool) -> None:
    """SIGHUP: somebody asks for a reload, or the terminal is gone in which the program was started.

    There is nobody left then to whom it could log, or who could end it.
    """
    if not had_terminal or os.isatty(STDERR):
        reload.set()
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (STDOUT, STDERR):
        os.dup2(nowhere, stream)
    stop.set()


def run_program(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run a whole program: `main(stop)` in an event loop, until it returns.

    What was imported is taken from the garbage collector's sight: it lives as long as the process,
    and going through it once more is most of what an exit would cost.
    """
    gc.freeze()
    asyncio.run(run_until_signal(main))
    gc.freeze()


async def sleep_unless(stop: asyncio.Event, seconds: float) -> bool:
    """Sleep, or return True at once when `stop` is set."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True
