"""A real Envoy as a child process, and its admin page."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from headrace_controller.xds import bootstrap
from headrace_shared.net import HostPort
from headrace_shared.tls import TlsSettings
from tests.support.ports import free_port

END_S = 20.0


def envoy_program() -> str:
    """The `envoy` that is installed beside this Python, or on the PATH."""
    beside = Path(sys.executable).parent / "envoy"
    found = str(beside) if beside.exists() else shutil.which("envoy")
    assert found, "no envoy program; run make setup"
    return found


class Envoy:
    """Asks a running Envoy's admin page."""

    def __init__(self, admin_port: int, session: aiohttp.ClientSession) -> None:
        self.base = f"http://127.0.0.1:{admin_port}"
        self._session = session

    async def get(self, path: str) -> str:
        async with self._session.get(self.base + path) as response:
            return await response.text()

    async def hosts(self, cluster: str) -> dict[str, dict[str, Any]]:
        """The hosts of a cluster by `address:port`, as /clusters tells them."""
        async with self._session.get(self.base + "/clusters?format=json") as response:
            page = await response.json(content_type=None)
        for status in page.get("cluster_statuses", []):
            if status["name"] == cluster:
                return {_address(host): host for host in status.get("host_statuses", [])}
        return {}

    async def counter(self, name: str) -> int:
        """The value of a counter or gauge; 0 where it does not stand."""
        text = await self.get(f"/stats?filter=^{name}$")
        return int(text.partition(": ")[2] or 0)

    async def up(self) -> bool:
        """True once the admin page answers."""
        try:
            await self.get("/ready")
        except aiohttp.ClientError:
            return False
        return True

    async def live(self) -> bool:
        """True once Envoy has its configuration and takes requests."""
        return await self.up() and (await self.get("/ready")).strip() == "LIVE"


def _address(host: dict[str, Any]) -> str:
    socket_address = host["address"]["socket_address"]
    return f"{socket_address['address']}:{socket_address['port_value']}"


@asynccontextmanager
async def running_envoy(
    gateway: str, xds: HostPort, directory: Path, tls: TlsSettings | None = None, *, delta: bool = False
) -> AsyncIterator[Envoy]:
    """Start an Envoy with our bootstrap; it is gone, with its group, when the block ends."""
    admin_port = free_port()
    config = bootstrap.render(gateway, xds, admin_port, tls, delta=delta)
    async with envoy_of(config, admin_port, directory, gateway) as envoy:
        yield envoy


@asynccontextmanager
async def envoy_of(config: str, admin_port: int, directory: Path, name: str) -> AsyncIterator[Envoy]:
    """Start an Envoy with this configuration (YAML); it is gone, with its group, when the block ends."""
    path = directory / f"{name}.yaml"
    path.write_text(config)
    arguments = ["-c", str(path), "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"]
    with (directory / f"{name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            envoy_program(), *arguments, stdout=log, stderr=log, start_new_session=True
        )
    try:
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            yield Envoy(admin_port, session)
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        # It may end just now.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
