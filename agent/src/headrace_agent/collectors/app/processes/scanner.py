"""Looks at the host's processes in a thread of its own: seldom, one look at a time, bounded in time."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from headrace_agent.collectors.app.processes import listing
from headrace_agent.collectors.app.processes.belonging import Basis, Belonging, find, grown
from headrace_agent.collectors.app.processes.exits import Allowance
from headrace_agent.collectors.app.processes.listing import Listing
from headrace_agent.collectors.app.processes.table import Process, ProcessTable
from headrace_shared.clock import Clock

LOOK_TIMEOUT_S: Final = 10.0

T = TypeVar("T")


class LookError(Exception):
    """The processes cannot be looked at; the text says why."""


@dataclass(frozen=True, slots=True)
class Look:
    """An engine's processes, what each calls itself, and all that run on this host."""

    found: Belonging
    titles: Mapping[Process, str]
    processes: ProcessTable


class ProcessScanner:
    """Serves all engines of an agent: who asks while another's look is under way shares the next one.

    `allowance` bounds how many processes they watch together.
    """

    def __init__(self, clock: Clock, timeout_s: float = LOOK_TIMEOUT_S) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()
        self._pending: asyncio.Future[Any] | None = None
        self._last: Listing | None = None
        self._began = 0.0
        self.allowance = Allowance()

    async def look(self, address: str | None, port: int) -> Look:
        """The processes of the engine at an address (None = any) and port. Raises LookError."""
        asked = self._clock.now()
        async with self._turn:
            if self._last is None or self._began < asked:
                began = self._clock.now()
                self._last = await self._run(listing.read_listing)
                self._began = began
            seen = self._last
            return await self._run(
                lambda: _look(find(seen, address, port, _command_line, os.getpid()), seen.processes)
            )

    async def grown(self, servers: set[Process], basis: Basis | None) -> Look:
        """The same servers and the descendants they have now, which is a small look. Raises LookError."""
        async with self._turn:
            return await self._run(lambda: _grown(servers, basis))

    async def _run(self, read: Callable[[], T]) -> T:
        """Run `read` in a thread that has no say in when the agent exits."""
        if self._pending is not None and not self._pending.done():
            raise LookError("an earlier look at the host's processes has not come back")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[T | None, Exception | None]] = loop.create_future()

        def work() -> None:
            outcome: tuple[T | None, Exception | None]
            try:
                outcome = read(), None
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                outcome = None, error
            try:
                loop.call_soon_threadsafe(_settle, done, outcome)
            except RuntimeError:
                return  # the loop has ended, and nobody waits any longer

        self._pending = done
        threading.Thread(target=work, name="processes", daemon=True).start()
        await asyncio.wait([done], timeout=self._timeout_s)
        if not done.done():
            raise LookError(f"a look at the host's processes took longer than {self._timeout_s:g} s")
        value, error = done.result()
        if isinstance(error, OSError):
            raise LookError(f"the host's processes cannot be listed: {error}") from error
        if error is not None:
            raise error
        return value  # type: ignore[return-value]


def _settle(done: asyncio.Future[T], outcome: T) -> None:
    if not done.done():
        done.set_result(outcome)


def _grown(servers: set[Process], basis: Basis | None) -> Look:
    processes = listing.read_table()
    return _look(grown(processes, servers, basis), processes)


def _look(found: Belonging, processes: ProcessTable) -> Look:
    titles = {each: listing.describe(each.name, _command_line(each.pid)) for each in found.members}
    return Look(found, titles, processes)


def _command_line(pid: int) -> tuple[str, ...]:
    return listing.read_command_line(pid)
