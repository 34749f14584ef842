"""A region from the inventory on: engines become facts, facts a plan, the plan an Envoy's configuration."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from headrace_controller.capability import Guide
from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState
from headrace_controller.projection import PlanBuilder
from headrace_controller.settings import EnvoySettings, GatewaySettings, PoolSettings
from headrace_controller.xds.server import XdsServer
from headrace_controller.xds.snapshot import SnapshotBuilder
from headrace_controller.xds.upstreams import read_upstreams
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from tests.e2e.routing.engines import Engine
from tests.e2e.xds.envoy import Envoy, running_envoy
from tests.e2e.xds.stack import GATEWAY, PATIENT_CHECKS_S, Answer, until, until_async
from tests.support.gateway_port import GatewayPort
from tests.support.ports import free_port

WEIGHT = 100


class Region:
    """A fleet that a test writes, published to one Envoy. All cells have the same weight."""

    def __init__(
        self,
        settings: EnvoySettings,
        pools: Mapping[str, PoolSettings],
        aliases: Mapping[str, str],
        guide: Guide,
    ) -> None:
        clock = SystemClock()
        self.port = free_port()
        gateway = GatewaySettings(id=GATEWAY, host="127.0.0.1", listen=HostPort("127.0.0.1", self.port))
        self.fleet = Fleet([GATEWAY])
        self.server = XdsServer(clock, [GATEWAY])
        self.plans = PlanBuilder([GATEWAY], guide)
        self._snapshots = SnapshotBuilder(
            gateway,
            settings,
            epoch_ns=clock.wall_ns(),
            aliases=aliases,
            upstreams=read_upstreams(pools),
        )
        self.envoy: Envoy
        self.session: aiohttp.ClientSession

    def publish(self, engines: Iterable[Engine], failed: Iterable[Engine] = ()) -> None:
        """Make `engines` the fleet; those that `failed` are known and not READY."""
        down = {engine.name for engine in failed}
        every = list(engines)
        hello = pb.Hello(node="n1", site="s", incarnation=1, cells=[_facts(engine) for engine in every])
        self.fleet.register("n1", "s", hello, 0.0)
        for engine in every:
            state = CellState.FAILED if engine.name in down else CellState.READY
            self.fleet.state[self.fleet.row(engine.name)] = state
        pools = self.fleet.pools()
        members = np.flatnonzero(self.fleet.state[pools.row] == CellState.READY)
        weights = np.full((1, len(members)), WEIGHT, dtype=np.int64)
        self.plan = self.plans.build(self.fleet, pools, members, weights)
        self.server.publish(GATEWAY, self._snapshots.build(self.plan))

    async def in_force(self) -> None:
        """Wait until Envoy accepted all that is published."""
        status = self.server.status
        await until(lambda: all(each.in_force for each in status()[GATEWAY].types.values()))
        assert status()[GATEWAY].nacks == 0

    async def ask(self, model: str = "m", **body: Any) -> Answer:
        """A completion; the body's length stands in its header."""
        data = json.dumps({"model": model, "prompt": "hello", **body}).encode()
        return await self.send(data=io.BytesIO(data), headers={"content-type": "application/json"})

    async def send(self, method: str = "POST", path: str = "/v1/completions", **arguments: Any) -> Answer:
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self.session.request(method, url, **arguments) as response:
            body = await response.text()
            headers = {name.lower(): value for name, value in response.headers.items()}
            read = json.loads(body) if response.content_type == "application/json" else body
            return Answer(response.status, read, headers.get("x-headrace-upstream", ""), headers)


def _facts(engine: Engine) -> pb.CellFacts:
    base, *adapters = engine.models
    models = [pb.ModelFacts(id=base, max_model_len=engine.max_model_len)]
    models += [pb.ModelFacts(id=each, base_model=base) for each in adapters]
    return pb.CellFacts(
        cell_id=engine.name,
        address=pb.Address(host="127.0.0.1", port=engine.port),
        models=models,
        health_path=engine.health_path,
        tls=engine.tls,
    )


@asynccontextmanager
async def running_region(
    directory: Path,
    *engines: Engine,
    settings: EnvoySettings | None = None,
    pools: Mapping[str, PoolSettings] | None = None,
    aliases: Mapping[str, str] | None = None,
    guide: Guide | None = None,
) -> AsyncIterator[Region]:
    """All of it, once Envoy serves the engines."""
    settings = settings or EnvoySettings(expose_upstream=True, health_check_timeout_s=PATIENT_CHECKS_S)
    region = Region(settings, pools or {}, aliases or {}, guide or Guide())
    xds = HostPort("127.0.0.1", free_port())
    server = GatewayPort()
    region.server.add_to(server)
    try:
        for engine in engines:
            await engine.start()
        await server.start(xds)
        region.publish(engines)
        async with (
            running_envoy(GATEWAY, xds, directory) as region.envoy,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as region.session,
        ):
            await until_async(region.envoy.live)
            yield region
    finally:
        await region.server.close()
        await server.stop()
        for engine in engines:
            await engine.stop()
