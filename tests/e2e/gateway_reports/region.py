"""A whole controller in this process, a real Envoy, small engines, and agents that a test can end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from headrace_controller.service import Controller
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from headrace_shared.tasks import Supervisor
from tests.e2e.xds.cells import Cell
from tests.e2e.xds.envoy import Envoy, running_envoy
from tests.e2e.xds.stack import until, until_async
from tests.support.gateway_port import GatewayPort
from tests.support.ports import free_port

GATEWAY = "gw-1"
BEAT_S = 0.1
PATIENCE_S = 30.0


class Region:
    """The controller's loop, the Envoy, and one agent for each engine, all called by the engine's name.

    The agents say what one for vLLM 0.6.6 does: requests that ended well are counted, refused ones
    are not.
    """

    def __init__(self, controller: Controller, cells: Sequence[Cell], port: int) -> None:
        self.controller, self.loop = controller, controller.loop
        self.cells = {cell.name: cell for cell in cells}
        self.silent: set[str] = set()
        self.counted: dict[str, pb.RequestTotals] = {}
        self.url = f"http://127.0.0.1:{port}/v1/completions"
        self.server: GatewayPort
        self.envoy: Envoy
        self.session: aiohttp.ClientSession

    async def ask(self, **more: Any) -> int:
        """One request; its status, 0 where the connection broke."""
        body = {"model": "m", "prompt": "hello", **more}
        try:
            async with self.session.post(self.url, json=body) as response:
                await response.read()
                return response.status
        except aiohttp.ClientError:
            return 0

    def counts(self, cell: str) -> dict[str, int]:
        """What the gateway saw of a cell; "" = of none."""
        account = self.loop.reports.cell(cell).get(GATEWAY)
        return {name: count for name, count in account.counts.items() if count} if account else {}

    def weights(self) -> dict[str, int]:
        """The published weights."""
        return {name: self.loop.weights_of(name)[GATEWAY] for name in self.cells}

    async def counted_up(self, cell: str, **wanted: int) -> None:
        """Wait until the gateway's counts of a cell are these."""
        try:
            await until(lambda: self.counts(cell) == wanted, PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"{cell!r}: {self.counts(cell)} and not {wanted}") from None

    def greet(self) -> None:
        """Every agent says Hello."""
        for cell in self.cells.values():
            facts = pb.CellFacts(
                cell_id=cell.name,
                address=pb.Address(host="127.0.0.1", port=cell.port),
                engine_kind="vllm",
                engine_version="0.6.6",
                models=[pb.ModelFacts(id="m", max_model_len=4096)],
            )
            hello = pb.Hello(node=f"n-{cell.name}", site="s", incarnation=1, cells=[facts])
            self.loop.hello(hello, self.loop.now())

    async def speak(self) -> None:
        """Beat for every agent that is not silent, until cancelled."""
        while True:
            for cell in self.cells.values():
                if cell.name not in self.silent:
                    self._beat(cell)
            await asyncio.sleep(BEAT_S)

    def _beat(self, cell: Cell) -> None:
        totals = self.counted.get(cell.name) or pb.RequestTotals(ok=cell.requests)
        said = pb.CellBeat(
            cell_id=cell.name,
            engine_state=pb.ENGINE_STATE_SERVING,
            serving_ms=600_000,
            in_flight=0,
            signals=pb.Signals(queue_depth=0, kv_fill=0.1, gpu_util=0.2, vram_util=0.5),
            requests=totals,
        )
        self.loop.telemetry(f"n-{cell.name}", pb.Telemetry(cells=[said]), self.loop.now())


@asynccontextmanager
async def running_region(directory: Path, *cells: Cell, **more: Any) -> AsyncIterator[Region]:
    """All of it, once Envoy carries requests to every cell; `more` are settings of the controller."""
    for cell in cells:
        await cell.start()
    port, xds = free_port(), HostPort("127.0.0.1", free_port())
    tree = {
        "gateways": [{"id": GATEWAY, "host": "127.0.0.1", "listen": f"127.0.0.1:{port}"}],
        "lifecycle": {"ramp_s": 0, "barrier_s": 0.2},
        "gateway_reports": {"flush_s": 0.1, "load_interval_s": 0.2},
        "envoy": {"connect_timeout_s": 1.0, "health_checks": False},
        "recording": {"enabled": False},
        **more,
    }
    settings = config.parse(yaml.safe_dump(tree), ControllerSettings)
    controller = Controller(settings, SystemClock())
    region = Region(controller, cells, port)
    region.server = await _serve(controller, xds)
    try:
        async with Supervisor() as supervisor:
            region.greet()
            supervisor.spawn("agents", region.speak())
            supervisor.spawn("control loop", controller.loop.run())
            async with (
                running_envoy(GATEWAY, xds, directory) as region.envoy,
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as region.session,
            ):
                await until_async(region.envoy.live, PATIENCE_S)
                await until_async(lambda: _holds(region, len(cells)), PATIENCE_S)
                yield region
    finally:
        await controller.inquiry.close()
        await controller.xds.close()
        await region.server.stop()
        controller.desk.close()
        for cell in cells:
            await cell.stop()


async def _holds(region: Region, count: int) -> bool:
    return len(await region.envoy.hosts("pool/m")) == count


async def _serve(controller: Controller, xds: HostPort) -> GatewayPort:
    server = GatewayPort()
    controller.xds.add_to(server)
    if controller.gateways is not None:
        controller.gateways.add_to(server)
    await server.start(xds)
    return server
