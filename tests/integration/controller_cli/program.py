"""`headrace-controller` as a process: its settings file, its log and its end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from headrace_lab.stack import ports
from tests.support.program import Running, process_of

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
    return dict(zip(PORTS, ports.free_ports(len(PORTS)), strict=True))


def write(folder: Path, text: str) -> Path:
    """A settings file of this text."""
    path = folder / "controller.yaml"
    path.write_text(text)
    return path


def started(config: Path, before: str = "") -> AbstractAsyncContextManager[Running]:
    """A controller's process, perhaps not serving yet; `before` is Python that it runs first."""
    return process_of(sys.executable, "-c", f"{before}\n{MAIN}", "run", "--config", str(config))


@asynccontextmanager
async def controller(config: Path) -> AsyncIterator[Running]:
    """A controller that serves."""
    async with started(config) as running:
        await running.logged(event="serving")
        yield running
