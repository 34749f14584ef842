"""`headrace-controller` as a process: its settings file, its log and its end."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headrace_shared.clock import SystemClock

clock = SystemClock()
# The promise is 2 s on a machine that is not overloaded (the demo measures it); a program that is
# stuck takes far longer than this.
EXIT_LIMIT_S = 6.0
MAIN = "from headrace_controller.cli import main; main()"
PORTS = ("telemetry", "xds", "admin")
CONFIG = """\
region: berlin
listen:
  telemetry: 127.0.0.1:{telemetry}
  xds: 127.0.0.1:{xds}
  admin: 127.0.0.1:{admin}
gateways:
  - id: gw-1
    host: 127.0.0.1
log: {{format: json}}
"""


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    return subprocess.run(
        [sys.executable, "-c", MAIN, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def free_ports() -> dict[str, int]:
    """A port for each listener, all different; free until somebody takes them."""
    held = [socket.socket() for _ in PORTS]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return {name: each.getsockname()[1] for name, each in zip(PORTS, held, strict=True)}
    finally:
        for each in held:
            each.close()


def write(folder: Path, text: str) -> Path:
    """A settings file of this text."""
    path = folder / "controller.yaml"
    path.write_text(text)
    return path


def assert_free(port: int) -> None:
    """Nobody listens on `port` any more."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


class Running:
    """A controller's process and what it has logged."""

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
        async with asyncio.timeout(30):
            while True:
                for line in self.lines:
                    if all(line.get(key) == value for key, value in wanted.items()):
                        return line
                await asyncio.sleep(0.01)

    async def ended(self) -> int:
        """The exit code, when it comes by itself."""
        async with asyncio.timeout(30):
            return await self.process.wait()

    async def terminate(self, sent: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; the exit code, and the seconds until the process was gone."""
        began = clock.now()
        self.process.send_signal(sent)
        async with asyncio.timeout(EXIT_LIMIT_S + 5):
            code = await self.process.wait()
        return code, clock.now() - began


@asynccontextmanager
async def started(config: Path, before: str = "") -> AsyncIterator[Running]:
    """A controller's process, perhaps not serving yet; `before` is Python that it runs first."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"{before}\n{MAIN}", "run", "--config", str(config)),
        stderr=asyncio.subprocess.PIPE,
    )
    running = Running(process)
    reader = asyncio.create_task(running.read(), name="log of the controller")
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await reader


@asynccontextmanager
async def controller(config: Path) -> AsyncIterator[Running]:
    """A controller that serves."""
    async with started(config) as running:
        await running.logged(event="serving")
        yield running
