"""One of our programs as a process: its log, and its end."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from headrace_shared.clock import SystemClock

# The promise is 2 s on a machine that is not overloaded (the demo measures it); a program that is
# stuck takes far longer than this.
EXIT_LIMIT_S = 6.0
_clock = SystemClock()


class Running:
    """A process and what it has logged."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.other: list[str] = []

    async def read(self) -> None:
        """Collect the log until the process ends; lines that are no JSON go to `other`."""
        assert self.process.stderr is not None
        async for raw in self.process.stderr:
            try:
                self.lines.append(json.loads(raw))
            except ValueError:
                self.other.append(raw.decode())

    async def logged(self, **wanted: str) -> dict[str, Any]:
        """The first log line with these values."""
        async with asyncio.timeout(60):
            while True:
                for line in self.lines:
                    if all(line.get(key) == value for key, value in wanted.items()):
                        return line
                await asyncio.sleep(0.01)

    async def ended(self) -> int:
        """The exit code, when it comes by itself."""
        async with asyncio.timeout(60):
            return await self.process.wait()

    async def terminate(self, sent: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; the exit code, and the seconds until the process was gone."""
        began = _clock.now()
        self.process.send_signal(sent)
        async with asyncio.timeout(EXIT_LIMIT_S + 5):
            code = await self.process.wait()
        return code, _clock.now() - began


@asynccontextmanager
async def process_of(*command: str) -> AsyncIterator[Running]:
    """Run a command; whatever is left of it at the end of the context is killed."""
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    running = Running(process)
    reader = asyncio.create_task(running.read(), name=f"log of process {process.pid}")
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await reader


def assert_free(port: int) -> None:
    """Nobody listens on `port` any more."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
