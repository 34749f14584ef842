"""The xDS server of one gateway, publishing plans that a test writes, with an Envoy under it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp

from headrace_controller.projection.plan import Endpoint, Endpoints, Plan
from headrace_controller.settings import EnvoySettings, GatewaySettings
from headrace_controller.wire.call import Method
from headrace_controller.xds.server import GatewayStatus, XdsServer
from headrace_controller.xds.snapshot import SnapshotBuilder
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from headrace_shared.tls import TlsSettings
from tests.e2e.xds.cells import Cell
from tests.e2e.xds.envoy import Envoy, running_envoy
from tests.support.gateway_port import GatewayPort
from tests.support.ports import free_port

GATEWAY = "gw-test"
# What waits for a healthy program in vain waits for one that is starved: that costs time and no more.
PATIENCE_S = 30.0
# On a busy machine an engine answers its checks late, and that is not the point.
PATIENT_CHECKS_S = 20.0
Weights = Mapping[Cell, int]


@dataclass(frozen=True)
class Answer:
    """What a client saw; `upstream` is the serving address where Envoy says it."""

    status: int
    body: Any
    upstream: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Control:
    """The controller's side: a server that can be stopped and started on its port."""

    def __init__(
        self,
        gateway: GatewaySettings,
        settings: EnvoySettings,
        baseline: Literal["rr", "lr"] | None = None,
        tls: TlsSettings | None = None,
    ) -> None:
        self.xds_address = HostPort("127.0.0.1", free_port())
        self._gateway, self._settings, self._baseline = gateway, settings, baseline
        self._tls = tls
        self._port: GatewayPort | None = None
        self.server: XdsServer
        self.builder: SnapshotBuilder

    async def start(self) -> None:
        clock = SystemClock()
        self.server = XdsServer(
            clock,
            [self._gateway.id],
            nodes={self._gateway.id: self._gateway.nodes},
            check_identity=self._tls is not None,
        )
        self.builder = SnapshotBuilder(
            self._gateway, self._settings, baseline=self._baseline, epoch_ns=clock.wall_ns()
        )
        self._port = GatewayPort(self._tls, self.more())
        self.server.add_to(self._port)
        await self._port.start(self.xds_address)

    async def stop(self) -> None:
        if self._port is not None:
            await self.server.close()
            await self._port.stop()
            self._port = None

    def more(self) -> Mapping[str, Method]:
        """What is served besides."""
        return {}

    def publish(self, pools: Mapping[str, Weights]) -> None:
        plan = Plan(
            {
                model: {
                    self._gateway.id: Endpoints.of(
                        Endpoint(cell.name, "127.0.0.1", cell.port, weight)
                        for cell, weight in weights.items()
                    )
                }
                for model, weights in pools.items()
            }
        )
        self.server.publish(self._gateway.id, self.builder.build(plan))

    @property
    def status(self) -> GatewayStatus:
        return self.server.status()[self._gateway.id]

    async def in_force(self, seconds: float = PATIENCE_S) -> None:
        """Wait until Envoy accepted all that is published."""
        await until(lambda: all(each.in_force for each in self.status.types.values()), seconds)


class Stack:
    """A control, an Envoy and a client."""

    def __init__(self, control: Control, envoy: Envoy, url: str, session: aiohttp.ClientSession) -> None:
        self.control, self.envoy = control, envoy
        self.url, self.session = url, session

    async def ask(self, model: str = "m", **more: Any) -> Answer:
        body = json.dumps({"model": model, "prompt": "hello", **more}).encode()
        return await self.post(data=io.BytesIO(body), headers={"content-type": "application/json"})

    async def post(self, path: str = "/v1/completions", **arguments: Any) -> Answer:
        return await self.request("POST", path, **arguments)

    async def request(self, method: str, path: str, **arguments: Any) -> Answer:
        async with self.session.request(method, self.url + path, **arguments) as response:
            body = (
                await response.json()
                if response.content_type == "application/json"
                else await response.text()
            )
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, body, headers.get("x-headrace-upstream", ""), headers)

    async def passing(self) -> None:
        """Wait until no host of any cluster fails its health checks, as a new one does until its first."""

        async def none_fails() -> bool:
            return "/failed_active_hc" not in await self.envoy.get("/clusters")

        await until_async(none_fails)

    async def healthy(self, model: str, count: int, seconds: float = PATIENCE_S) -> None:
        """Wait until `count` hosts of a pool passed their health checks."""

        async def enough() -> bool:
            hosts = (await self.envoy.hosts(f"pool/{model}")).values()
            failed = [each for each in hosts if "failed_active_health_check" in each["health_status"]]
            return len(hosts) - len(failed) == count

        await until_async(enough, seconds)


@asynccontextmanager
async def running_stack(
    directory: Path,
    pools: Mapping[str, Weights],
    settings: EnvoySettings | None = None,
    baseline: Literal["rr", "lr"] | None = None,
    *,
    delta: bool = False,
    passing: bool = True,
) -> AsyncIterator[Stack]:
    """All of it, once Envoy serves `pools` and their cells pass their checks, unless told otherwise; with
    `delta` it takes differences."""
    port = free_port()
    gateway = GatewaySettings(id=GATEWAY, host="127.0.0.1", listen=HostPort("127.0.0.1", port))
    usual = EnvoySettings(expose_upstream=True, health_check_timeout_s=PATIENT_CHECKS_S)
    control = Control(gateway, settings or usual, baseline)
    await control.start()
    try:
        control.publish(pools)
        async with running_envoy(GATEWAY, control.xds_address, directory, delta=delta) as envoy:
            await until_async(envoy.live)
            timeout = aiohttp.ClientTimeout(total=60)
            async with aiohttp.ClientSession(timeout=timeout) as session:
                stack = Stack(control, envoy, f"http://127.0.0.1:{port}", session)
                if passing:
                    await stack.passing()
                yield stack
    finally:
        await control.stop()


async def until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Wait for `condition`; TimeoutError if it does not come true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.005)


async def until_async(condition: Callable[[], Awaitable[bool]], seconds: float = PATIENCE_S) -> None:
    """Wait for `condition`; TimeoutError if it does not come true."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.005)
