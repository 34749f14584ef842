"""A small ADS client, and a server to point it at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc
from envoy.service.endpoint.v3 import eds_pb2_grpc

from headrace_controller.xds.names import CDS, EDS, LDS, RDS
from headrace_controller.xds.server import Hooks, XdsServer
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from tests.support.gateway_port import GatewayPort
from tests.unit.controller.xds.builders import delta_request, request

# gRPC's channels to one address share a connection, which a server of before may just be closing.
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


class AdsServer:
    """An XdsServer on a port of its own, which it keeps when it is started again."""

    def __init__(
        self,
        *gateways: str,
        hooks: Hooks | None = None,
        port: int = 0,
        nodes: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.xds = XdsServer(SystemClock(), gateways, hooks, nodes or {})
        self.envoys = GatewayPort()
        self.xds.add_to(self.envoys)
        self.port = port

    async def start(self) -> None:
        self.port = await self.envoys.start(HostPort("127.0.0.1", self.port))


@asynccontextmanager
async def running(server: AdsServer) -> AsyncIterator[AdsServer]:
    await server.start()
    try:
        yield server
    finally:
        await server.xds.close()
        await server.envoys.stop()


class AdsClient:
    """One ADS stream. `versions` and `nonces` hold what came last, by type URL."""

    def __init__(self, call: Any, node: str) -> None:
        self.call, self.node = call, node
        self.versions: dict[str, str] = {}
        self.nonces: dict[str, str] = {}
        self.received: list[tuple[str, str]] = []

    async def ask(self, url: str, *names: str, version: str = "", error: str | None = None) -> None:
        nonce = self.nonces.get(url, "")
        await self.call.write(request(url, names, nonce, version, error, self.node))

    async def take(self, seconds: float = 30.0) -> Any:
        """The next response, not yet answered."""
        async with asyncio.timeout(seconds):
            response = await self.call.read()
        assert response is not grpc.aio.EOF, "the stream ended"
        self.nonces[response.type_url] = response.nonce
        self.received.append((response.type_url, response.version_info))
        return response

    async def ack(self, response: Any, *names: str) -> None:
        self.versions[response.type_url] = response.version_info
        await self.ask(response.type_url, *names, version=response.version_info)

    async def nack(self, response: Any, *names: str, message: str = "refused") -> None:
        kept = self.versions.get(response.type_url, "")
        await self.ask(response.type_url, *names, version=kept, error=message)

    async def silent(self, seconds: float = 0.3) -> bool:
        """True if nothing comes; ends the stream's usefulness, as a cancelled read does."""
        try:
            async with asyncio.timeout(seconds):
                return bool(await self.call.read() is grpc.aio.EOF)
        except TimeoutError:
            return True

    async def connect(self, *pools: str) -> None:
        """Subscribe to all types in Envoy's order and accept what comes."""
        await self.ask(CDS, version=self.versions.get(CDS, ""))
        await self.ack(await self.take())
        await self.ask(EDS, *pools)
        await self.ack(await self.take(), *pools)
        await self.ask(LDS)
        await self.ack(await self.take())
        await self.ask(RDS, "headrace")
        await self.ack(await self.take(), "headrace")


@asynccontextmanager
async def connected(port: int, node: str = "gw-1") -> AsyncIterator[AdsClient]:
    """A client's stream to the server on `port`."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OWN_CONNECTION) as channel:
        call = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()
        try:
            yield AdsClient(call, node)
        finally:
            call.cancel()


class DeltaClient:
    """One delta stream. `held` is what it has, by type URL and name."""

    def __init__(self, call: Any, node: str) -> None:
        self.call, self.node = call, node
        self.held: dict[str, dict[str, Any]] = {}

    async def ask(self, url: str, *names: str, **more: Any) -> None:
        await self.call.write(delta_request(url, names, node=self.node, **more))

    async def take(self, seconds: float = 30.0) -> Any:
        """The next response, not yet answered."""
        async with asyncio.timeout(seconds):
            response = await self.call.read()
        assert response is not grpc.aio.EOF, "the stream ended"
        return response

    async def ack(self, response: Any) -> None:
        held = self.held.setdefault(response.type_url, {})
        held.update((each.name, each) for each in response.resources)
        for name in response.removed_resources:
            held.pop(name, None)
        await self.ask(response.type_url, nonce=response.nonce)

    async def connect(self, *pools: str) -> None:
        """Subscribe to all types in Envoy's order, saying what is held, and accept what comes."""
        for url, names in ((CDS, ()), (EDS, pools), (LDS, ()), (RDS, ("headrace",))):
            had = {name: each.version for name, each in self.held.get(url, {}).items()}
            await self.ask(url, *names, held=had)
            if not had:
                await self.ack(await self.take())


@asynccontextmanager
async def delta_connected(
    port: int, node: str = "gw-1", *, endpoints_only: bool = False
) -> AsyncIterator[DeltaClient]:
    """A client's delta stream to the server on `port`."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OWN_CONNECTION) as channel:
        call = (
            eds_pb2_grpc.EndpointDiscoveryServiceStub(channel).DeltaEndpoints()
            if endpoints_only
            else ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).DeltaAggregatedResources()
        )
        try:
            yield DeltaClient(call, node)
        finally:
            call.cancel()


@asynccontextmanager
async def endpoints_connected(port: int, node: str = "gw-1") -> AsyncIterator[AdsClient]:
    """A client's stream to the endpoint discovery service on `port`."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OWN_CONNECTION) as channel:
        call = eds_pb2_grpc.EndpointDiscoveryServiceStub(channel).StreamEndpoints()
        try:
            yield AdsClient(call, node)
        finally:
            call.cancel()


async def until(condition: Any, seconds: float = 30.0) -> None:
    """Wait for `condition()`; TimeoutError if it does not come true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (another stream's progress)
            await asyncio.sleep(0.005)
