"""The xDS server: Envoys subscribe, snapshots are published, refusals are said out loud."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import grpc
from envoy.service.discovery.v3 import ads_pb2, ads_pb2_grpc
from envoy.service.endpoint.v3 import eds_pb2, eds_pb2_grpc

from headrace_controller.gateway.identity import is_named
from headrace_controller.xds.conversation import Client, StreamState, first_request, race
from headrace_controller.xds.delta import DeltaStream
from headrace_controller.xds.gateways import Gateway, Gateways
from headrace_controller.xds.snapshot import Snapshot
from headrace_controller.xds.status import GatewayStatus, Hooks, NackInfo, TypeStatus
from headrace_controller.xds.stream import Stream
from headrace_shared import log
from headrace_shared.clock import Clock

__all__ = ["SERVICES", "GatewayStatus", "Hooks", "NackInfo", "TypeStatus", "XdsServer"]

SERVICES: Final[tuple[str, ...]] = (
    ads_pb2.DESCRIPTOR.services_by_name["AggregatedDiscoveryService"].full_name,
    eds_pb2.DESCRIPTOR.services_by_name["EndpointDiscoveryService"].full_name,
)

CLOSE_TIMEOUT_S = 1.0

MAX_STREAMS = 256
"""Streams of one gateway: one an Envoy, and where it takes endpoints only, one a cluster."""


class XdsServer:
    """Discovery for a fixed set of gateways: aggregated or endpoints only, whole or delta.

    Before the first `publish` for a gateway its Envoys are sent nothing, and keep what they hold.
    `nodes` gives patterns of node ids by gateway; an Envoy whose node id is that of a gateway
    belongs to it in any case. With `check_identity` its certificate must name that gateway too:
    what gateways are sent holds the keys of engines.
    """

    def __init__(
        self,
        clock: Clock,
        gateways: Collection[str],
        hooks: Hooks | None = None,
        nodes: Mapping[str, Sequence[str]] = MappingProxyType({}),
        *,
        check_identity: bool = False,
    ) -> None:
        self._gateways = Gateways(list(gateways), nodes, hooks or Hooks(), clock.now)
        self._check_identity = check_identity
        self._closing = asyncio.Event()
        self._handlers = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._streams = 0
        self._log = log.get("xds")

    def add_to(self, server: Any) -> None:
        """Register the services with a server that does not run yet: wire.Handlers or a grpc.aio.Server."""
        ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(self, server)
        eds_pb2_grpc.add_EndpointDiscoveryServiceServicer_to_server(self, server)

    def publish(self, gateway_id: str, snapshot: Snapshot) -> None:
        """Put `snapshot` in force; its Envoys are woken at once, and nobody is waited for.

        A slow Envoy gets the newest snapshot when it can take it, and none in between. Raises
        KeyError for an unknown gateway.
        """
        self._gateways[gateway_id].publish(snapshot)

    def status(self) -> Mapping[str, GatewayStatus]:
        """Each gateway's state, by id."""
        return self._gateways.status()

    def gateway_of(self, node_id: str) -> str | None:
        """The gateway that an Envoy with this node id belongs to."""
        gateway = self._gateways.of_node(node_id)
        return None if gateway is None else gateway.id

    @property
    def strangers(self) -> Mapping[str, int]:
        """Node ids that were refused, because no gateway has them or the certificate names another, and
        how often; bounded."""
        return dict(self._gateways.strangers)

    async def close(self) -> None:
        """End every stream; returns once they have ended, after a second at the latest."""
        self._closing.set()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._idle.wait()
        except TimeoutError:
            self._log.warning("streams did not end in time", streams=self._handlers)

    async def StreamAggregatedResources(self, _requests: Any, context: Any) -> None:  # noqa: N802
        """Serve one Envoy's stream of all types (called by gRPC)."""
        await self._handle(Stream(), context)

    async def DeltaAggregatedResources(self, _requests: Any, context: Any) -> None:  # noqa: N802
        """The same by differences (called by gRPC)."""
        await self._handle(DeltaStream(), context)

    async def StreamEndpoints(self, _requests: Any, context: Any) -> None:  # noqa: N802
        """Serve endpoints to an Envoy that has the rest from elsewhere (called by gRPC)."""
        await self._handle(Stream(endpoints_only=True), context)

    async def DeltaEndpoints(self, _requests: Any, context: Any) -> None:  # noqa: N802
        """The same by differences (called by gRPC)."""
        await self._handle(DeltaStream(endpoints_only=True), context)

    async def FetchEndpoints(self, _request: Any, context: Any) -> None:  # noqa: N802
        """Refuse to be polled (called by gRPC)."""
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            "set api_type: GRPC or DELTA_GRPC in eds_config; REST is not served",
        )

    async def _handle(self, stream: StreamState, context: Any) -> None:
        self._handlers += 1
        self._idle.clear()
        try:
            await self._serve(stream, context)
        finally:
            self._handlers -= 1
            if not self._handlers:
                self._idle.set()

    async def _serve(self, stream: StreamState, context: Any) -> None:
        if self._closing.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the controller is shutting down")
        first = await first_request(context, self._closing)
        gateway = await self._admit(first, context)
        client = Client(stream)
        gateway.clients.add(client)
        self._streams += 1
        said = {"gateway": gateway.id, "node": first.node.id[:128], "peer": context.peer()}
        self._log.info("envoy connected", **said, envoys=len(gateway.clients))
        try:
            await self._run(f"{gateway.id}#{self._streams}", gateway, client, first, context)
        finally:
            gateway.clients.discard(client)
            self._log.info("envoy gone", **said, envoys=len(gateway.clients))

    async def _run(self, name: str, gateway: Gateway, client: Client, first: Any, context: Any) -> None:
        """Read and send until either is over, or the server closes."""
        work = {
            f"xds read {name}": client.read(first, gateway, context),
            f"xds send {name}": client.send(gateway, context),
        }
        for task in await race(work, self._closing):
            if not task.cancelled() and (error := task.exception()) is not None:
                self._log.info("stream broke", gateway=gateway.id, task=task.get_name(), error=repr(error))
        context.set_code(grpc.StatusCode.UNAVAILABLE)
        context.set_details("the stream ended; connect again")

    async def _admit(self, first: Any, context: Any) -> Gateway:
        if first is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the stream ended before a request")
        gateway = self._gateways.of_node(first.node.id)
        if gateway is None:
            self._gateways.refuse(first.node.id, context.peer())
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"no gateway has the id {first.node.id[:128]!r}; "
                f"set node.id in the Envoy bootstrap to one of: {self._gateways.known()}",
            )
            raise AssertionError("abort returned")
        if self._check_identity and not is_named(gateway.id, self.gateway_of, context):
            self._gateways.refuse_identity(first.node.id, gateway.id, context.peer())
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"the certificate does not name gateway {gateway.id!r}; issue one with it as its name",
            )
        if len(gateway.clients) >= MAX_STREAMS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} streams already use this gateway"
            )
        return gateway
