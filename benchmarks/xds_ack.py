"""From a publication to a real Envoy's word that it is in force: 1,000 endpoints, all weights moved.

Both kinds of stream, one after the other. The time runs from `XdsServer.publish` to the moment at which the
server has the Envoy's ACK. The endpoints pass the active health checks of the generated configuration:
each is an address of 127/8 at which a process of its own answers.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np

from benchmarks.result import json_path, report
from headrace_controller.projection.plan import Cells, Endpoints, Plan
from headrace_controller.settings import EnvoySettings, GatewaySettings
from headrace_controller.xds import bootstrap
from headrace_controller.xds.server import Hooks, XdsServer
from headrace_controller.xds.snapshot import SnapshotBuilder
from headrace_lab.stack.ports import free_ports
from headrace_lab.stack.program import console_script
from headrace_shared import log
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from headrace_shared.rpc import SERVER_OPTIONS

SEED: Final = 1
ENDPOINTS: Final = 1000
PUSHES: Final = 300
PAUSE_S: Final = 0.05
READY_S: Final = 30.0
MAX_WEIGHT: Final = 100
ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class _Healthy(asyncio.Protocol):
    """Answers whatever is asked."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, _data: bytes) -> None:
        self._transport.write(ANSWER)


def answer_checks(port: int) -> None:
    """The engines' process: every address of 127/8, one port."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Healthy, "0.0.0.0", port, backlog=4096)
        await server.serve_forever()

    asyncio.run(serve())


class Bench:
    """An xDS server with one gateway, and the time that each of its EDS pushes took."""

    def __init__(self, port: int, cells_port: int, listen_port: int) -> None:
        self._random = random.Random(SEED)
        self._gateway = GatewaySettings(id="gw", host="127.0.0.1", listen=HostPort("127.0.0.1", listen_port))
        clock = SystemClock()
        self.xds = XdsServer(clock, ["gw"], Hooks(on_ack=self._acked))
        self._builder = SnapshotBuilder(self._gateway, EnvoySettings(), epoch_ns=clock.wall_ns())
        self._address = HostPort("127.0.0.1", port)
        self._cells = Cells.of(
            (f"c{n}", f"127.1.{n >> 8}.{n & 255}", cells_port) for n in range(1, ENDPOINTS + 1)
        )
        self._begun = 0.0
        self._taken = asyncio.Event()
        self.took_ms: list[float] = []

    def _acked(self, _gateway: str, kind: str, _seconds: float) -> None:
        if kind == "EDS":
            self.took_ms.append(1000 * (time.perf_counter() - self._begun))
            self._taken.set()

    def publish(self) -> None:
        """New weights for every endpoint."""
        weights = [self._random.randint(1, MAX_WEIGHT) for _ in range(ENDPOINTS)]
        snapshot = self._builder.build(Plan({"m": {"gw": Endpoints(self._cells, weights)}}))
        self._taken.clear()
        self._begun = time.perf_counter()
        self.xds.publish("gw", snapshot)

    async def measure(self) -> list[float]:
        """The times of so many pushes, each acknowledged before the next, ms."""
        self.took_ms.clear()
        for _ in range(PUSHES):
            self.publish()
            async with asyncio.timeout(READY_S):
                await self._taken.wait()
            await asyncio.sleep(PAUSE_S)
        return list(self.took_ms)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """The server, listening."""
        server = grpc.aio.server(options=SERVER_OPTIONS)
        self.xds.add_to(server)
        server.add_insecure_port(str(self._address))
        await server.start()
        try:
            yield
        finally:
            await self.xds.close()
            await server.stop(0.2)

    @asynccontextmanager
    async def envoy(self, directory: Path, admin_port: int, *, delta: bool) -> AsyncIterator[None]:
        """A real Envoy that has taken the first publication and serves."""
        path = directory / "envoy.yaml"
        path.write_text(bootstrap.render("gw", self._address, admin_port, delta=delta))
        with (directory / "envoy.log").open("wb") as said:
            process = await asyncio.create_subprocess_exec(
                console_script("envoy"),
                *("-c", str(path), "--disable-hot-restart", "--concurrency", "1", "--log-level", "error"),
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        try:
            await _healthy(admin_port)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _healthy(admin_port: int) -> None:
    """Wait until every endpoint has passed a check."""
    async with asyncio.timeout(READY_S):
        while await asyncio.to_thread(_members, admin_port) < ENDPOINTS:  # noqa: ASYNC110 (another program)
            await asyncio.sleep(0.1)


def _members(admin_port: int) -> int:
    url = f"http://127.0.0.1:{admin_port}/stats?filter=^cluster.pool/m.membership_healthy$"
    try:
        with urllib.request.urlopen(url, timeout=5) as page:
            return int(page.read().decode().partition(": ")[2] or 0)
    except (urllib.error.URLError, ConnectionError):
        return 0


async def measure(cells_port: int, *, delta: bool) -> list[float]:
    """The times of all pushes to one Envoy."""
    port, admin_port, listen_port = free_ports(3)
    bench = Bench(port, cells_port, listen_port)
    with tempfile.TemporaryDirectory() as directory:
        async with bench.serving():
            bench.publish()
            async with bench.envoy(Path(directory), admin_port, delta=delta):
                return await bench.measure()


def main() -> None:
    """Run both kinds."""
    path = json_path(__doc__ or "")
    log.configure("error")
    (cells_port,) = free_ports(1)
    engines = multiprocessing.get_context("spawn").Process(target=answer_checks, args=(cells_port,))
    engines.start()
    try:
        times = {kind: asyncio.run(measure(cells_port, delta=kind == "delta")) for kind in ("sotw", "delta")}
    finally:
        engines.kill()
        engines.join()
    figures: dict[str, float] = {"n": float(sum(map(len, times.values())))}
    for kind, taken in times.items():
        figures[f"ack_ms_p50.{kind}"] = float(np.percentile(taken, 50))
        figures[f"ack_ms_p99.{kind}"] = float(np.percentile(taken, 99))
        figures[f"ack_ms_max.{kind}"] = max(taken)
    for share in ("p50", "p99"):
        figures[f"ack_ms_{share}"] = max(figures[f"ack_ms_{share}.{kind}"] for kind in times)
    report("xds_ack", SEED, figures, path)


if __name__ == "__main__":
    main()
