"""The gRPC service that Envoy's external-processing filter asks, one call a request.

A call has three messages: the request's headers, answered with the cells that are named; the headers of
the answer, which say from whom it is, and are all of an answer without a body; and its first chunk, which
says when the first token came. Then the call is ended, and Envoy passes the rest on by itself. Each message
is answered within the read that brought it: no task runs for a call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, Final

from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf.message import DecodeError

from headrace_controller.gateway.identity import GatewayOf
from headrace_controller.picker import messages
from headrace_controller.picker.picker import Picker
from headrace_controller.picker.prefix import block_names
from headrace_controller.picker.requests import Ask, Outcome, Pick, Served
from headrace_controller.picker.waiting import Waiting
from headrace_controller.settings import PickerSettings
from headrace_controller.wire.call import Call, Method
from headrace_controller.wire.messages import CallFault, Status
from headrace_controller.xds.names import GATEWAY_METADATA
from headrace_shared import log
from headrace_shared.clock import Clock

__all__ = ["GATEWAY_METADATA", "SERVICE", "Hooks", "PickerService"]

SERVICE: Final[str] = pb.DESCRIPTOR.services_by_name["ExternalProcessor"].full_name
MAX_STREAMS: Final = 32_768
"""Requests of all gateways that wait for their first token; what is more goes by the weights."""
FIRST_TIMEOUT_S: Final = 1.0
MAX_SAID: Final = 64
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
        self._unasked = Waiting[Call](clock, FIRST_TIMEOUT_S, _end)
        self._unanswered = Waiting[Call](clock, settings.expiry_s, _end)
        self._count = 0
        self._closing = False
        self._log = log.get("picker")
        self._said: set[str] = set()

    def methods(self) -> dict[str, Method]:
        """What is served, by gRPC path."""
        return {f"/{SERVICE}/Process": self.begin}

    def close(self) -> None:
        """End every call, and each that comes from now on."""
        self._closing = True
        self._unasked.end()
        self._unanswered.end()

    def begin(self, call: Call) -> PickStream:
        """A request has come to a gateway. Raises CallFault where it is none's that may ask."""
        if self._closing:
            raise CallFault(Status.UNAVAILABLE, "the controller is shutting down")
        gateway = call.fields.get(GATEWAY_METADATA, "")
        if gateway not in self._gateways:
            raise self._refusal(call, "pick_unknown_gateway", f"no gateway has the id {gateway[:128]!r}")
        if self._gateway_of is not None and gateway not in map(self._gateway_of, call.peer.names):
            words = f"the certificate does not name gateway {gateway!r}"
            raise self._refusal(call, "pick_wrong_identity", words)
        self._unasked.add(call)
        return PickStream(self, call, gateway)

    def read_ask(self, message: Any) -> Ask:
        """The request that a first message describes."""
        return messages.read_ask(message, self._settings.session_header)

    def wants_body(self, message: Any) -> bool:
        """Whether the body is to come before a cell is named; an Envoy of somebody's own may send none."""
        if not self._settings.prefix_affinity or message.request_headers.end_of_stream:
            return False
        if messages.sends_bodies(message):
            return True
        if "bodies" not in self._said:
            self._said.add("bodies")
            self._log.warning(
                "picker.prefix_affinity is set, and an Envoy sends no bodies: what its prompts share is not "
                "known; set request_body_mode: BUFFERED in its ext_proc filter"
            )
        return False

    def with_blocks(self, ask: Ask, body: bytes) -> Ask:
        """The request with the names of its beginning."""
        names = block_names(body, ask.model, self._settings.prefix_block_bytes)
        return dataclasses.replace(ask, blocks=names)

    def name(self, call: Call, gateway: str, ask: Ask, in_body: bool, began: float) -> str:
        """Answer with the cells that are named; the key that the request is followed by, "" = it is not."""
        self._unasked.discard(call)
        ask, pick = self._pick(gateway, ask, began)
        call.send(messages.named(pick.addresses, in_body))
        now = self._clock.now()
        self._hooks.on_pick(pick.outcome, now - began)
        if call.ended:
            self._picker.ended(ask.key, now)
        if call.ended or pick.outcome not in _FOLLOWED:
            return ""
        self._unanswered.add(call)
        if reason := self._picker.known.guard.took(now - began, now):
            self._stood_aside(reason)
        return ask.key

    def learn(self, key: str, found: messages.Answered) -> None:
        """The first of the answer has come, or all of one without a body."""
        now = self._clock.now()
        served = self._picker.answered(
            key, now, found.address, found.status, found.prompt_tokens, found.began_at
        )
        if served is not None:
            self._hooks.on_served(served)
            if served.error:
                self._stood_aside(served.error)

    def over(self, call: Call, key: str) -> None:
        """A call has ended."""
        self._unasked.discard(call)
        self._unanswered.discard(call)
        if key:
            self._picker.ended(key, self._clock.now())

    def now(self) -> float:
        """The time, s."""
        return self._clock.now()

    def _pick(self, gateway: str, ask: Ask, now: float) -> tuple[Ask, Pick]:
        """The pick, and the request by the key that it is followed by."""
        key = ask.key
        while not key or self._picker.book.get_open(key) is not None:
            # Clients may choose their ids: one may also look like ours.
            self._count += 1
            key = f"{ask.key}{_TAG}{self._count}"
        if key != ask.key:
            ask = dataclasses.replace(ask, key=key)
        if len(self._unanswered) >= MAX_STREAMS:
            return ask, Pick(Outcome.BUSY)
        try:
            return ask, self._picker.pick(gateway, ask, now)
        except Exception as error:  # noqa: BLE001 (whatever it is, it must cost nobody a request)
            if (said := repr(error)) not in self._said and len(self._said) < MAX_SAID:
                self._said.add(said)
                self._log.exception("a pick failed; the request goes by the weights", error=said)
            # It may have come as far as the book.
            self._picker.ended(ask.key, now)
            return ask, Pick(Outcome.FAILED)

    def _stood_aside(self, reason: str) -> None:
        self._log.warning("the picker stands aside for a while; requests go by the weights", reason=reason)

    def _refusal(self, call: Call, reason: str, detail: str) -> CallFault:
        self._hooks.on_refused(reason)
        if reason not in self._said:
            # Said once: each request of that Envoy comes here.
            self._said.add(reason)
            peer = call.peer.address
            self._log.warning("picks for an Envoy refused", reason=reason, detail=detail, peer=peer)
        return CallFault(Status.PERMISSION_DENIED, detail)


class _Next(Enum):
    """What a call waits for: the messages that may come next."""

    HEADERS = frozenset({"request_headers"})
    BODY = frozenset({"request_body"})
    # An Envoy of somebody's own may not send the headers.
    ANSWER = frozenset({"response_headers", "response_body"})
    CHUNK = frozenset({"response_body"})


class PickStream:
    """One request's call."""

    __slots__ = ("_ask", "_call", "_gateway", "_head", "_key", "_next", "_service")

    def __init__(self, service: PickerService, call: Call, gateway: str) -> None:
        self._service = service
        self._call = call
        self._gateway = gateway
        self._next = _Next.HEADERS
        self._ask: Ask | None = None
        self._head: messages.Answered | None = None
        self._key = ""

    def message(self, data: bytes) -> None:
        """Answer a message; what is not expected ends the call."""
        began = self._service.now()
        message = _read(data)
        kind = message.WhichOneof("request")
        if kind not in self._next.value:
            self._call.finish(Status.OK)
        elif kind == "response_headers":
            self._take_head(message)
        elif kind == "response_body":
            # First of all let it go on.
            self._call.send(messages.CHUNK_DONE)
            self._service.learn(self._key, messages.read_chunk(message, self._head))
            self._call.finish(Status.OK)
        elif self._next is _Next.BODY:
            assert self._ask is not None, "headers come before the body"
            self._name(self._service.with_blocks(self._ask, message.request_body.body), True, began)
        else:
            self._take_headers(message, began)

    def half_closed(self) -> None:
        """The gateway has no more to say: its client has left."""
        self._call.finish(Status.OK)

    def closed(self) -> None:
        """The call has ended."""
        self._service.over(self._call, self._key)

    def _take_headers(self, message: Any, began: float) -> None:
        ask = self._service.read_ask(message)
        if self._service.wants_body(message):
            self._ask, self._next = ask, _Next.BODY
            self._call.send(messages.named((), False))
        else:
            self._name(ask, False, began)

    def _take_head(self, message: Any) -> None:
        """Of an answer without a body nothing more comes."""
        self._call.send(messages.ANSWER_DONE)
        self._head = messages.read_head(message)._replace(began_at=self._service.now())
        self._next = _Next.CHUNK
        if message.response_headers.end_of_stream:
            self._service.learn(self._key, self._head)
            self._call.finish(Status.OK)

    def _name(self, ask: Ask, in_body: bool, began: float) -> None:
        self._key = self._service.name(self._call, self._gateway, ask, in_body, began)
        if self._key:
            self._next = _Next.ANSWER
        else:
            self._call.finish(Status.OK)


def _read(data: bytes) -> Any:
    try:
        return pb.ProcessingRequest.FromString(data)
    except DecodeError:
        raise CallFault(Status.INTERNAL, "the message is none of this protocol") from None


def _end(call: Call) -> None:
    call.finish(Status.OK)
