"""The gRPC service that Envoy's external-processing filter asks, one stream a request.

A stream has two messages: the request's headers, answered with the cells that are named, and the first
chunk of the answer, which says when the first token came and from whom. Then the stream is ended, and
Envoy passes the rest on by itself.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection
from typing import Any, Final

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc

from headrace_controller.gateway.identity import GatewayOf, is_named
from headrace_controller.picker import messages
from headrace_controller.picker.picker import Picker
from headrace_controller.picker.prefix import block_names
from headrace_controller.picker.requests import Ask, Outcome, Pick, Served
from headrace_controller.settings import PickerSettings
from headrace_controller.xds.names import GATEWAY_METADATA
from headrace_shared import log
from headrace_shared.clock import Clock

__all__ = ["GATEWAY_METADATA", "SERVICE", "Hooks", "PickerService"]

SERVICE: Final[str] = pb.DESCRIPTOR.services_by_name["ExternalProcessor"].full_name
MAX_STREAMS: Final = 32_768
"""Requests of all gateways that wait for their first token; what is more goes by the weights."""
FIRST_TIMEOUT_S: Final = 1.0
MAX_SAID: Final = 64
CLOSE_TIMEOUT_S: Final = 1.0
_FOLLOWED: Final = frozenset({Outcome.NAMED, Outcome.AFFINITY, Outcome.LEFT})
_TAG: Final = "#"


@dataclasses.dataclass(frozen=True, slots=True)
class Hooks:
    """Who hears of picks; the calls return at once."""

    on_pick: Callable[[Outcome, float], None] = lambda outcome, seconds: None
    on_served: Callable[[Served], None] = lambda served: None
    on_refused: Callable[[str], None] = lambda reason: None


class PickerService:
    """Serves the gateways whose ids are given. With `gateway_of`, a peer's certificate must name the
    gateway that it speaks for."""

    def __init__(
        self,
        picker: Picker,
        clock: Clock,
        settings: PickerSettings,
        gateways: Collection[str],
        hooks: Hooks | None = None,
        gateway_of: GatewayOf | None = None,
    ) -> None:
        self._picker = picker
        self._clock = clock
        self._settings = settings
        self._gateways = frozenset(gateways)
        self._hooks = hooks or Hooks()
        self._gateway_of = gateway_of
        self._reading: set[asyncio.Task[Any]] = set()
        self._late: set[asyncio.Task[Any]] = set()
        self._streams = 0
        self._count = 0
        self._closing = False
        self._idle = asyncio.Event()
        self._log = log.get("picker")
        self._said: set[str] = set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service with a server that does not run yet."""
        external_processor_pb2_grpc.add_ExternalProcessorServicer_to_server(self, server)

    async def close(self) -> None:
        """End every stream; returns once they have ended, after a second at the latest."""
        self._closing = True
        for reading in tuple(self._reading):
            reading.cancel()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while self._streams:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            self._log.warning("picks did not end in time", streams=self._streams)

    async def Process(self, _requests: Any, context: Any) -> None:  # noqa: N802
        """Serve one request (called by gRPC)."""
        gateway = await self._admit(context)
        self._streams += 1
        try:
            message = await self._read(context, FIRST_TIMEOUT_S)
            if message is not None and message.WhichOneof("request") == "request_headers":
                await self._serve(gateway, message, context)
        finally:
            self._streams -= 1
            self._idle.set()

    async def _serve(self, gateway: str, message: Any, context: Any) -> None:
        began = self._clock.now()
        ask = messages.read_ask(message, self._settings.session_header)
        in_body = self._settings.prefix_affinity and not message.request_headers.end_of_stream
        if in_body:
            await context.write(messages.HEADERS_DONE)
            message = await self._read(context, FIRST_TIMEOUT_S)
            if message is None or message.WhichOneof("request") != "request_body":
                return
            began = self._clock.now()
            names = block_names(message.request_body.body, ask.model, self._settings.prefix_block_bytes)
            ask = dataclasses.replace(ask, blocks=names)
        ask, pick = self._pick(gateway, ask, began)
        try:
            if pick.addresses:
                await context.write(messages.named(pick.addresses, in_body))
            else:
                await context.write(messages.BODY_DONE if in_body else messages.HEADERS_DONE)
            self._took(pick, began)
            if pick.outcome in _FOLLOWED:
                await self._follow(ask, context)
        finally:
            self._picker.ended(ask.key, self._clock.now())

    def _pick(self, gateway: str, ask: Ask, now: float) -> tuple[Ask, Pick]:
        """The pick, and the request by the key that it is followed by."""
        if not ask.key or self._picker.book.get_open(ask.key) is not None:
            self._count += 1
            ask = dataclasses.replace(ask, key=f"{ask.key}{_TAG}{self._count}")
        if self._streams > MAX_STREAMS:
            return ask, Pick(Outcome.BUSY)
        try:
            return ask, self._picker.pick(gateway, ask, now)
        except Exception as error:  # noqa: BLE001 (whatever it is, it must cost nobody a request)
            if (said := repr(error)) not in self._said and len(self._said) < MAX_SAID:
                self._said.add(said)
                self._log.exception("a pick failed; the request goes by the weights", error=said)
            return ask, Pick(Outcome.FAILED)

    def _took(self, pick: Pick, began: float) -> None:
        now = self._clock.now()
        self._hooks.on_pick(pick.outcome, now - began)
        if pick.outcome in _FOLLOWED and (reason := self._picker.guard.took(now - began, now)):
            self._stood_aside(reason)

    async def _follow(self, ask: Ask, context: Any) -> None:
        """Wait for the first of the answer and learn from it."""
        message = await self._read(context, self._settings.expiry_s)
        if message is None or message.WhichOneof("request") != "response_body":
            return
        now = self._clock.now()
        # First of all let it go on.
        await context.write(messages.CHUNK_DONE)
        found = messages.read_answered(message)
        served = self._picker.answered(ask.key, now, found.address, found.status, found.prompt_tokens)
        if served is not None:
            self._hooks.on_served(served)
            if served.error:
                self._stood_aside(served.error)

    def _stood_aside(self, reason: str) -> None:
        self._log.warning("the picker stands aside for a while; requests go by the weights", reason=reason)

    async def _read(self, context: Any, seconds: float) -> Any | None:
        """The next message; None where there is none in time, the stream has ended, or the service
        closes: gRPC takes a handler that it has to cancel for a broken one."""
        task = asyncio.current_task()
        assert task is not None, "gRPC runs handlers as tasks"
        if self._ends():
            return None
        self._reading.add(task)
        # A third of what asyncio.timeout costs, twice a request.
        alarm = asyncio.get_running_loop().call_later(seconds, self._give_up, task)
        try:
            message = await context.read()
        except asyncio.CancelledError:
            if task not in self._late and not self._ends():
                raise
            task.uncancel()
            return None
        finally:
            alarm.cancel()
            self._reading.discard(task)
            self._late.discard(task)
        return None if message is grpc.aio.EOF else message

    def _give_up(self, task: asyncio.Task[Any]) -> None:
        self._late.add(task)
        task.cancel()

    def _ends(self) -> bool:
        return self._closing

    async def _admit(self, context: Any) -> str:
        gateway = dict(context.invocation_metadata()).get(GATEWAY_METADATA, "")
        if gateway not in self._gateways:
            await self._refuse(context, "pick_unknown_gateway", f"no gateway has the id {gateway[:128]!r}")
        if self._gateway_of is not None and not is_named(gateway, self._gateway_of, context):
            await self._refuse(
                context, "pick_wrong_identity", f"the certificate does not name gateway {gateway!r}"
            )
        return str(gateway)

    async def _refuse(self, context: Any, reason: str, detail: str) -> None:
        self._hooks.on_refused(reason)
        if reason not in self._said:
            # Said once: each request of that Envoy comes here.
            self._said.add(reason)
            self._log.warning("picks for an Envoy refused", reason=reason, detail=detail, peer=context.peer())
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, detail)
