"""A controller for tests: records what agents say, and answers as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.readings import CellEvent
from headrace_agent.heartbeat.outbox import Reporter
from headrace_agent.heartbeat.stream import ControllerStream, Handlers
from headrace_agent.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import CellTelemetryServicer, add_CellTelemetryServicer_to_server
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from headrace_shared.tls import TlsSettings

# Left to itself, gRPC grows a stream's window to megabytes, and a reader that stopped blocks nobody
# for minutes.
FIXED_WINDOW = [("grpc.http2.bdp_probe", 0)]


class Controller(CellTelemetryServicer):
    """Serves one port; `streams` holds, per stream in the order they came, the messages read."""

    def __init__(self) -> None:
        self.streams: list[list[pb.AgentMessage]] = []
        self.peers: list[dict[str, Any]] = []
        self.telemetry_ms = 100
        self.liveness_ms = 20
        self.gateways: list[pb.Gateway] = []
        self.refused: list[pb.RefusedCell] = []
        self.welcomes = True
        self.acks = True
        self.abort: tuple[grpc.StatusCode, str] | None = None
        self.reads = asyncio.Event()
        self.reads.set()
        self.port = 0
        self._contexts: list[Any] = []
        self._server: grpc.aio.Server | None = None

    async def start(self, credentials: grpc.ServerCredentials | None = None) -> None:
        """Listen on the port of before, or on a free one at first."""
        self._server = grpc.aio.server(options=FIXED_WINDOW)
        add_CellTelemetryServicer_to_server(self, self._server)
        address = f"127.0.0.1:{self.port}"
        if credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, credentials)
        assert self.port != 0
        await self._server.start()

    async def kill(self) -> None:
        """Stop at once: streams are cut, the port is closed."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
        await asyncio.sleep(0)

    async def send(self, message: pb.ControllerMessage) -> None:
        """Say something on the newest stream."""
        await self._contexts[-1].write(message)

    def kinds(self, stream: int = -1) -> list[str]:
        """The kinds of the messages read on one stream."""
        return [message.WhichOneof("body") or "" for message in self.streams[stream]]

    def of_kind(self, kind: str, stream: int = -1) -> list[Any]:
        """The messages of one kind read on one stream."""
        return [getattr(each, kind) for each in self.streams[stream] if each.WhichOneof("body") == kind]

    async def Stream(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]
        if self.abort is not None:
            await context.abort(*self.abort)
        messages: list[pb.AgentMessage] = []
        self.streams.append(messages)
        self.peers.append(dict(context.auth_context()))
        self._contexts.append(context)
        while True:
            await self.reads.wait()
            message = await context.read()
            if message is grpc.aio.EOF:
                return
            messages.append(message)
            await self._answer(message, context)

    async def _answer(self, message: pb.AgentMessage, context: Any) -> None:
        kind = message.WhichOneof("body")
        if kind == "hello" and self.welcomes:
            welcome = pb.Welcome(
                session="s",
                telemetry_interval_ms=self.telemetry_ms,
                liveness_interval_ms=self.liveness_ms,
                gateways=self.gateways,
                refused=self.refused,
            )
            await context.write(pb.ControllerMessage(welcome=welcome))
        elif kind == "event" and self.acks:
            await context.write(pb.ControllerMessage(ack=pb.Ack(event_id=message.event.event_id)))


class Report:
    """A reporter whose beats number themselves; `padding` makes them heavy."""

    def __init__(self, padding: int = 0) -> None:
        self.facts = "1"
        self.beats = 0
        self._padding = "x" * padding

    def hello(self, now: float) -> pb.Hello:
        return pb.Hello(node="host-1", site="berlin", agent_version=self.facts, incarnation=7)

    def telemetry(self, now: float) -> pb.Telemetry:
        self.beats += 1
        source = pb.SourceBeat(name=str(self.beats), detail=self._padding)
        return pb.Telemetry(cells=[pb.CellBeat(cell_id="c1", sources=[source])])


class Heard:
    """What a stream's handlers were called with."""

    def __init__(self) -> None:
        self.gateways: list[tuple[str, list[str]]] = []
        self.drains: list[pb.Drain] = []
        self.undrains: list[pb.Undrain] = []

    def handlers(self) -> Handlers:
        return Handlers(self._take_gateways, self._take_drain, self._take_undrain)

    def _take_gateways(self, controller: str, gateways: Sequence[pb.Gateway]) -> None:
        self.gateways.append((controller, [gateway.id for gateway in gateways]))

    def _take_drain(self, controller: str, drain: pb.Drain) -> None:
        self.drains.append(drain)

    def _take_undrain(self, controller: str, undrain: pb.Undrain) -> None:
        self.undrains.append(undrain)


@asynccontextmanager
async def streaming(
    port: int,
    reporter: Reporter | None = None,
    heard: Heard | None = None,
    tls: TlsSettings | None = None,
    mishaps: Mishaps | None = None,
) -> AsyncIterator[ControllerStream]:
    """A stream that runs while the context is open."""
    settings = ControllerSettings(address=HostPort("127.0.0.1", port), tls=tls)
    handlers = (heard or Heard()).handlers()
    stream = ControllerStream(settings, reporter or Report(), handlers, SystemClock(), mishaps=mishaps)
    task = asyncio.create_task(stream.run(), name="stream under test")
    try:
        yield stream
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await settle()


async def settle() -> None:
    """Let gRPC's own tasks for calls that have ended run out.

    They are told by another thread, and one of them may start another: a moment without any is not
    the end of them yet.
    """
    quiet = 0
    async with asyncio.timeout(30):
        while quiet < 5:
            coroutines = (repr(each.get_coro()) for each in asyncio.all_tasks())
            busy = any("_AioCall" in each or "StreamStreamCall" in each for each in coroutines)
            quiet = 0 if busy else quiet + 1
            await asyncio.sleep(0.005)


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for a condition; fails when it does not come true in time."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not true within {seconds} s") from None


def event(kind: Any, cause: str = "", cell: str = "c1") -> CellEvent:
    """An event of cell c1."""
    return CellEvent(cell, kind, cause)
