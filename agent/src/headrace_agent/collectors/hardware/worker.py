"""One daemon thread for calls that can hang: bounded waits, and no say in when the agent exits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

Outcome = tuple[Any, Exception | None]
Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Outcome]"]


class HungError(Exception):
    """A call has not come back in time; until it does, its worker takes no other."""


class Worker:
    """Runs one call at a time in its own thread, which starts with the first call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending: asyncio.Future[Outcome] | None = None

    async def call(self, job: Callable[[], T], timeout_s: float) -> T:
        """Run `job` in the thread and return what it returns or raise what it raises.

        Raises HungError when it takes longer than `timeout_s`, and at once while an earlier call
        is still out.
        """
        if self._pending is not None and not self._pending.done():
            raise HungError(f"{self.name}: an earlier call has not come back")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self.name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        pending: asyncio.Future[Outcome] = loop.create_future()
        self._pending = pending
        self._jobs.put((job, loop, pending))
        await asyncio.wait([pending], timeout=timeout_s)
        if not pending.done():
            raise HungError(f"{self.name}: no answer within {timeout_s:g} s")
        value, error = pending.result()
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    async def close(self, cleanup: Callable[[], None], grace_s: float) -> None:
        """Wait up to `grace_s` for a call that is out, run `cleanup` in the thread, end the thread.

        A call that never comes back keeps its daemon thread, which ends with the process.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        loop = asyncio.get_running_loop()
        cleaned: asyncio.Future[Outcome] = loop.create_future()
        self._jobs.put((cleanup, loop, cleaned))
        self._jobs.put(None)
        await asyncio.wait([cleaned], timeout=grace_s)

    def _serve(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, loop, pending = item
            try:
                outcome: Outcome = (job(), None)
            except Exception as error:  # noqa: BLE001 - it is raised again where the call was made
                outcome = (None, error)
            try:
                loop.call_soon_threadsafe(_settle, pending, outcome)
            except RuntimeError:
                return  # the loop has closed: nobody waits for this answer any more


def _settle(pending: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not pending.done():
        pending.set_result(outcome)
