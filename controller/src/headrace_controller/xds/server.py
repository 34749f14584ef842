"""The ADS server: Envoys subscribe, snapshots are published, refusals are said out loud."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc

from headrace_controller.xds.names import SHORT, TYPES
from headrace_controller.xds.snapshot import Snapshot
from headrace_controller.xds.status import GatewayStatus, Hooks, NackInfo, TypeStatus
from headrace_controller.xds.stream import Acked, Nacked, Stream
from headrace_shared import log
from headrace_shared.clock import Clock

__all__ = ["GatewayStatus", "Hooks", "NackInfo", "TypeStatus", "XdsServer"]

FIRST_REQUEST_TIMEOUT_S = 10.0
WRITE_TIMEOUT_S = 30.0
HOLD_POLL_S = 0.05
CLOSE_TIMEOUT_S = 1.0

MAX_STREAMS = 64
"""Envoys that may share one gateway id."""

MAX_STRANGERS = 64
MAX_MESSAGE_CHARS = 2000


@dataclass(eq=False, slots=True)
class _Client:
    """One connected Envoy."""

    stream: Stream = field(default_factory=Stream)
    wake: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Gateway:
    """What is kept of one gateway: the newest snapshot only."""

    id: str
    snapshot: Snapshot | None = None
    clients: set[_Client] = field(default_factory=set)
    pushes: int = 0
    nacks: int = 0
    last_nack: NackInfo | None = None
    acked: dict[str, str] = field(default_factory=dict)
    nacked: dict[str, NackInfo] = field(default_factory=dict)


class XdsServer:
    """State-of-the-world ADS for a fixed set of gateways.

    Before the first `publish` for a gateway its Envoys are sent nothing, and keep what they hold.
    """

    def __init__(self, clock: Clock, gateways: Collection[str], hooks: Hooks | None = None) -> None:
        self._clock = clock
        self._hooks = hooks or Hooks()
        self._gateways = {each: _Gateway(each) for each in gateways}
        self._strangers: dict[str, int] = {}
        self._closing = asyncio.Event()
        self._handlers = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._streams = 0
        self._log = log.get("xds")

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service; before the server starts. Make it with headrace_shared.rpc.SERVER_OPTIONS."""
        ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(self, server)

    def publish(self, gateway_id: str, snapshot: Snapshot) -> None:
        """Put `snapshot` in force; its Envoys are woken at once, and nobody is waited for.

        A slow Envoy gets the newest snapshot when it can take it, and none in between. Raises
        KeyError for an unknown gateway.
        """
        gateway = self._gateways[gateway_id]
        if gateway.snapshot is snapshot:
            return
        gateway.snapshot = snapshot
        gateway.nacked = {
            url: nack for url, nack in gateway.nacked.items() if nack.version == snapshot.version(url)
        }
        for client in gateway.clients:
            client.wake.set()

    def status(self) -> Mapping[str, GatewayStatus]:
        """Each gateway's state, by id."""
        return {each.id: _status(each) for each in self._gateways.values()}

    @property
    def strangers(self) -> Mapping[str, int]:
        """Node ids that were refused because no gateway has them, and how often; bounded."""
        return dict(self._strangers)

    async def close(self) -> None:
        """End every stream; returns once they have ended, after a second at the latest."""
        self._closing.set()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._idle.wait()
        except TimeoutError:
            self._log.warning("streams did not end in time", streams=self._handlers)

    async def StreamAggregatedResources(self, _requests: Any, context: Any) -> None:  # noqa: N802
        """Serve one Envoy's stream (called by gRPC)."""
        self._handlers += 1
        self._idle.clear()
        try:
            await self._serve(context)
        finally:
            self._handlers -= 1
            if not self._handlers:
                self._idle.set()

    async def DeltaAggregatedResources(self, _requests: Any, context: Any) -> None:  # noqa: N802
        """Refuse the delta protocol (called by gRPC)."""
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED, "set api_type: GRPC in ads_config; DELTA_GRPC is not served"
        )

    async def _serve(self, context: Any) -> None:
        if self._closing.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the controller is shutting down")
        first = await self._first_request(context)
        gateway = await self._admit(first, context)
        client = _Client()
        gateway.clients.add(client)
        self._streams += 1
        name = f"{gateway.id}#{self._streams}"
        self._log.info(
            "envoy connected", gateway=gateway.id, peer=context.peer(), envoys=len(gateway.clients)
        )
        self._take(gateway, client, first)
        try:
            await self._run(name, gateway, client, context)
        finally:
            gateway.clients.discard(client)
            self._log.info("envoy gone", gateway=gateway.id, peer=context.peer(), envoys=len(gateway.clients))

    async def _run(self, name: str, gateway: _Gateway, client: _Client, context: Any) -> None:
        """Read and send until either is over, or the server closes."""
        tasks = await self._race(
            {
                f"xds read {name}": self._read(gateway, client, context),
                f"xds send {name}": self._send(gateway, client, context),
            }
        )
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._log.info("stream broke", gateway=gateway.id, task=task.get_name(), error=repr(error))
        context.set_code(grpc.StatusCode.UNAVAILABLE)
        context.set_details("the stream ended; connect again")

    async def _first_request(self, context: Any) -> Any:
        (read,) = await self._race({"xds first request": context.read()}, FIRST_REQUEST_TIMEOUT_S)
        if not read.cancelled():
            return read.result()
        closing = self._closing.is_set()
        await context.abort(
            grpc.StatusCode.UNAVAILABLE if closing else grpc.StatusCode.DEADLINE_EXCEEDED,
            "the controller is shutting down" if closing else "no request came on the stream",
        )
        raise AssertionError("abort returned")

    async def _race(
        self, work: Mapping[str, Coroutine[Any, Any, Any]], timeout_s: float | None = None
    ) -> list[asyncio.Task[Any]]:
        """Run tasks until the first is over, the server closes, or the time is up; all have ended then."""
        tasks = [asyncio.create_task(each, name=name) for name, each in work.items()]
        closing = asyncio.create_task(self._closing.wait(), name="xds closing")
        try:
            await asyncio.wait([*tasks, closing], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tasks, closing):
                task.cancel()
            await asyncio.gather(*tasks, closing, return_exceptions=True)
        return tasks

    async def _admit(self, first: Any, context: Any) -> _Gateway:
        if first is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the stream ended before a request")
        gateway = self._gateways.get(first.node.id)
        if gateway is None:
            self._refuse(first.node.id, context.peer())
            known = ", ".join(sorted(self._gateways))
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"no gateway has the id {first.node.id[:128]!r}; "
                f"set node.id in the Envoy bootstrap to one of: {known}",
            )
            raise AssertionError("abort returned")
        if len(gateway.clients) >= MAX_STREAMS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} Envoys already use this id"
            )
        return gateway

    def _refuse(self, node_id: str, peer: str) -> None:
        key = node_id[:128]
        if key not in self._strangers:
            # Said once: an Envoy that is refused comes back for ever.
            self._log.warning(
                "an Envoy with an unknown node id was refused; add a gateway with this id or correct "
                "node.id in its bootstrap",
                node=key,
                peer=peer,
                gateways=sorted(self._gateways),
            )
            if len(self._strangers) >= MAX_STRANGERS:
                del self._strangers[next(iter(self._strangers))]
        self._strangers[key] = self._strangers.get(key, 0) + 1
        self._hooks.on_stranger(key)

    async def _read(self, gateway: _Gateway, client: _Client, context: Any) -> None:
        while (request := await context.read()) is not grpc.aio.EOF:
            self._take(gateway, client, request)

    def _take(self, gateway: _Gateway, client: _Client, request: Any) -> None:
        answer = client.stream.on_request(request, gateway.snapshot, self._clock.now())
        if isinstance(answer, Acked):
            gateway.acked[answer.type_url] = answer.version
            self._hooks.on_ack(gateway.id, SHORT[answer.type_url], answer.seconds)
        elif isinstance(answer, Nacked):
            self._nacked(gateway, answer)
        client.wake.set()

    def _nacked(self, gateway: _Gateway, answer: Nacked) -> None:
        name, message = SHORT[answer.type_url], answer.message[:MAX_MESSAGE_CHARS]
        info = NackInfo(name, answer.version, message, self._clock.now())
        gateway.nacks += 1
        gateway.last_nack = info
        if gateway.snapshot and gateway.snapshot.version(answer.type_url) == answer.version:
            gateway.nacked[answer.type_url] = info
        self._log.error(
            "an Envoy refused a configuration and keeps the one before",
            gateway=gateway.id,
            type=name,
            version=answer.version,
            message=message,
        )
        self._hooks.on_nack(gateway.id, name, message)

    async def _send(self, gateway: _Gateway, client: _Client, context: Any) -> None:
        while True:
            client.wake.clear()
            while (response := self._next(gateway, client)) is not None:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await context.write(response)
            await self._pause(gateway, client)

    def _next(self, gateway: _Gateway, client: _Client) -> Any | None:
        if gateway.snapshot is None:
            return None
        response = client.stream.next_response(gateway.snapshot, self._clock.now())
        if response is not None:
            gateway.pushes += 1
            self._hooks.on_push(gateway.id, SHORT[response.type_url])
        return response

    async def _pause(self, gateway: _Gateway, client: _Client) -> None:
        held = gateway.snapshot is not None and client.stream.holds(gateway.snapshot)
        try:
            async with asyncio.timeout(HOLD_POLL_S if held else None):
                await client.wake.wait()
        except TimeoutError:
            return


def _status(gateway: _Gateway) -> GatewayStatus:
    return GatewayStatus(
        gateway=gateway.id,
        streams=len(gateway.clients),
        published=gateway.snapshot is not None,
        pushes=gateway.pushes,
        nacks=gateway.nacks,
        last_nack=gateway.last_nack,
        types={SHORT[url]: _type_status(gateway, url) for url in TYPES},
    )


def _type_status(gateway: _Gateway, url: str) -> TypeStatus:
    version = gateway.snapshot.version(url) if gateway.snapshot else ""
    acked = [client.stream.acked(url) for client in gateway.clients]
    return TypeStatus(
        version=version,
        acked=gateway.acked.get(url, ""),
        in_force=bool(version and acked) and all(each == version for each in acked),
        nacked=gateway.nacked.get(url),
    )
