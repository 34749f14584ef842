"""Handlers written for grpc.aio, on this server: a task a call, and a context to read from and write to.

For services of few and large messages. What generated code registers is served, as far as the services here
need it: messages are read as they are asked for, and a peer that sends faster is held by its window.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import grpc

from headrace_controller.wire.call import Call, Method, Receiver
from headrace_controller.wire.messages import CallFault, Status

MAX_UNREAD: Final = 4
"""Messages of a call that wait to be read; then its peer has to wait as well."""
MAX_CALLS: Final = 1024
"""Calls of one connection, each of which costs tasks: an Envoy has some, or one a cluster where it takes
endpoints only."""


class AbortedError(Exception):
    """The handler has ended its call."""


class Handlers:
    """Takes handlers as `grpc.aio.Server` does: `add_XServicer_to_server(servicer, handlers)`."""

    def __init__(self) -> None:
        self._methods: dict[str, Method] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._calls: Counter[str] = Counter()

    def add_generic_rpc_handlers(self, _handlers: object) -> None:
        """Generated code registers the same handlers by name as well."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Serve the methods of a service (called by generated code)."""
        for name, handler in handlers.items():
            self._methods[f"/{service}/{name}"] = self._method(name, handler)

    def methods(self) -> dict[str, Method]:
        """What is served, by gRPC path."""
        return dict(self._methods)

    async def close(self) -> None:
        """Wait for handlers whose calls have ended, and end the others."""
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _method(self, name: str, handler: Any) -> Method:
        return lambda call: self._begin(call, name, handler)

    def _begin(self, call: Call, name: str, handler: Any) -> Receiver:
        peer = call.peer.address
        if self._calls[peer] >= MAX_CALLS:
            raise CallFault(Status.RESOURCE_EXHAUSTED, f"{MAX_CALLS} calls already use this connection")
        self._calls[peer] += 1
        running = _Running(call, handler, name)
        self._running.add(running.task)
        running.task.add_done_callback(partial(self._ended, peer))
        return running

    def _ended(self, peer: str, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._calls[peer] -= 1
        if not self._calls[peer]:
            del self._calls[peer]


class _Running:
    """One call's handler, as its connection sees it."""

    def __init__(self, call: Call, handler: Any, name: str) -> None:
        self._context = Context(call, handler)
        self._call = call
        self._handler = handler
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"serve {name}")

    def message(self, data: bytes) -> None:
        self._context.take(data)

    def half_closed(self) -> None:
        self._context.take(None)

    def closed(self) -> None:
        self._context.wake()
        if self.task is not asyncio.current_task():
            self.task.cancel()

    async def _run(self) -> None:
        call, context = self._call, self._context
        try:
            await self._serve(context)
        except AbortedError:
            return
        except CallFault as fault:
            call.end(fault.status, fault.details)
        except Exception as error:  # noqa: BLE001 (one call's trouble must not end the others)
            call.fail(error)
        else:
            # What is still to be sent then is what the handler has given up writing.
            call.end(context.status, context.details)

    async def _serve(self, context: Context) -> None:
        handler = self._handler
        if handler.request_streaming and handler.response_streaming:
            await handler.stream_stream(None, context)
        elif handler.request_streaming:
            await context.write(await handler.stream_unary(None, context))
        else:
            await context.write(await handler.unary_unary(await context.read(), context))


class Context:
    """What a handler has of its call; as much of `grpc.aio.ServicerContext` as is used here."""

    def __init__(self, call: Call, handler: Any) -> None:
        self.status = Status.OK
        self.details = ""
        self._call = call
        self._read = handler.request_deserializer
        self._write = handler.response_serializer
        self._unread: deque[bytes | None] = deque()
        self._news = asyncio.Event()
        call.on_sent = self.wake

    def take(self, data: bytes | None) -> None:
        """A message came; None: there will be no more."""
        self._unread.append(data)
        if len(self._unread) >= MAX_UNREAD:
            self._call.hold(True)
        self.wake()

    def wake(self) -> None:
        """Something of the call has changed."""
        self._news.set()

    async def read(self) -> Any:
        """The next message; `grpc.aio.EOF` where there are no more. Raises CallFault for what is none."""
        while not (self._unread or self._call.ended):
            self._news.clear()
            await self._news.wait()
        if not self._unread or self._unread[0] is None:
            return grpc.aio.EOF
        data = self._unread.popleft()
        if len(self._unread) < MAX_UNREAD:
            self._call.hold(False)
        try:
            return self._read(data)
        except Exception as error:
            raise CallFault(Status.INTERNAL, "the message is none of this protocol") from error

    async def write(self, message: Any) -> None:
        """Send a message; returns once the peer's windows have taken it."""
        call = self._call
        call.send(self._write(message))
        while call.queued and not call.ended:
            self._news.clear()
            await self._news.wait()

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        """End the call, and its handler with AbortedError."""
        self._call.end(_status(code), details)
        raise AbortedError

    def set_code(self, code: grpc.StatusCode) -> None:
        """What the call ends with when its handler has returned."""
        self.status = _status(code)

    def set_details(self, details: str) -> None:
        """And the words."""
        self.details = details

    def peer(self) -> str:
        """The peer's address, for people."""
        return self._call.peer.address

    def auth_context(self) -> Mapping[str, list[bytes]]:
        """The names of the peer's certificate, where it was asked for one."""
        names = [name.encode() for name in self._call.peer.names]
        return {"x509_subject_alternative_name": names} if names else {}

    def invocation_metadata(self) -> list[tuple[str, str]]:
        """The call's header fields."""
        return list(self._call.fields.items())


def _status(code: grpc.StatusCode) -> Status:
    return Status(code.value[0])
