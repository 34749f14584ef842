"""The gRPC service that agents stream to.

One coroutine reads a stream and hands what passed validation to the `Sink`, which must return at
once; a writer task of its own sends answers from a bounded queue, so that a slow agent slows
nobody. A message that fails validation is counted, logged once per change of reason, and changes
nothing; it is still a sign of life.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol, cast

import grpc

from headrace_controller.ingest.sessions import Session, Sessions
from headrace_controller.ingest.validation import Rejection, check_event, check_telemetry
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import CellTelemetryServicer
from headrace_shared import log
from headrace_shared.clock import Clock

HELLO_TIMEOUT_S = 5.0
OUTGOING = 256


class Sink(Protocol):
    """Where validated messages go. `now` is the controller's monotonic clock, in seconds."""

    def hello(self, hello: pb.Hello, now: float) -> None:
        """Facts of a node's cells, refused ones left out."""
        ...

    def telemetry(self, node: str, telemetry: pb.Telemetry, now: float) -> None:
        """A full beat; cells that the node does not hold are left out."""
        ...

    def alive(self, node: str, now: float) -> None:
        """Any message of the node."""
        ...

    def event(self, node: str, event: pb.CellEvent, now: float) -> None:
        """Something that cannot wait; each event once."""
        ...

    def goodbye(self, node: str, goodbye: pb.Goodbye, now: float) -> None:
        """The node leaves on purpose."""
        ...

    def stream_lost(self, node: str, now: float) -> None:
        """The node's stream ended, with or without a Goodbye."""
        ...


Context = grpc.aio.ServicerContext[pb.AgentMessage, pb.ControllerMessage]


class TelemetryService(CellTelemetryServicer):
    """Serves `CellTelemetry.Stream`. `welcome` makes the answer to a Hello, without refusals."""

    def __init__(
        self,
        sink: Sink,
        clock: Clock,
        welcome: Callable[[], pb.Welcome],
        on_message: Callable[[str], None] = lambda kind: None,
        on_rejection: Callable[[str], None] = lambda reason: None,
        check_identity: bool = False,
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._welcome = welcome
        self._on_message = on_message
        self._on_rejection = on_rejection
        self._check_identity = check_identity
        self.sessions = Sessions()
        self._outgoing: dict[str, asyncio.Queue[pb.ControllerMessage]] = {}
        self._last_reason: dict[str, str] = {}
        self._log = log.get("ingest")

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        """Queue a message for a node; False when it is not connected or does not keep up."""
        queue = self._outgoing.get(node)
        if queue is None:
            return False
        try:
            queue.put_nowait(message)
        except asyncio.QueueFull:
            self._log.warning("agent does not read its answers", node=node, queued=queue.qsize())
            return False
        return True

    async def Stream(  # type: ignore[override]  # noqa: N802 (gRPC names it so)
        self, request_iterator: AsyncIterator[pb.AgentMessage], context: Context
    ) -> None:
        session = await self._open(context)
        queue: asyncio.Queue[pb.ControllerMessage] = asyncio.Queue(OUTGOING)
        self._outgoing[session.node] = queue
        self._greet(session, queue)
        writer = asyncio.create_task(_write(context, queue), name=f"answers to {session.node}")
        try:
            while not session.replaced and not writer.done():
                message = await cast(Any, context).read()
                if message is grpc.aio.EOF:
                    break
                self._take(session, message, queue)
        finally:
            # All that must happen comes before the await: gRPC may cancel this coroutine there.
            self._close(session, queue)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _close(self, session: Session, queue: asyncio.Queue[pb.ControllerMessage]) -> None:
        if self._outgoing.get(session.node) is queue:
            del self._outgoing[session.node]
        if not session.replaced:
            self.sessions.close(session)
            self._sink.stream_lost(session.node, self._clock.now())
            self._log.info("agent gone", node=session.node, session=session.id)

    async def _open(self, context: Context) -> Session:
        """Read the Hello that must come first, or abort the stream with what is wrong."""
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                first = await cast(Any, context).read()
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no Hello within {HELLO_TIMEOUT_S:g} s")
        if first is grpc.aio.EOF or first.WhichOneof("body") != "hello":
            await self._refuse(context, Rejection("no_hello", "the first message must be a Hello"))
        hello = first.hello
        strangers = self._strangers(context, hello.node)
        if strangers is not None:
            await self._refuse(context, strangers)
        session = self.sessions.open(hello)
        if isinstance(session, Rejection):
            await self._refuse(context, session)
        assert isinstance(session, Session)
        self._log.info("agent connected", node=session.node, site=session.site, cells=len(session.cells))
        self._pass_hello(session, hello)
        return session

    async def _refuse(self, context: Context, rejection: Rejection) -> None:
        self._on_rejection(rejection.reason)
        self._log.warning(
            "agent refused", reason=rejection.reason, detail=rejection.detail, peer=context.peer()
        )
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, rejection.detail)

    def _strangers(self, context: Context, node: str) -> Rejection | None:
        """With mutual TLS, a node is who its certificate says, never its own word."""
        if not self._check_identity:
            return None
        auth = context.auth_context()
        names = [*auth.get("x509_common_name", []), *auth.get("x509_subject_alternative_name", [])]
        if node in [name.decode("utf-8", "replace") for name in cast(Sequence[bytes], names)]:
            return None
        return Rejection(
            "wrong_identity", f"the certificate does not name node {node!r}; issue one with it as its name"
        )

    def _greet(self, session: Session, queue: asyncio.Queue[pb.ControllerMessage]) -> None:
        welcome = self._welcome()
        welcome.session = session.id
        for cell_id, reason in sorted(session.refused.items()):
            welcome.refused.add(cell_id=cell_id, reason=reason)
            self._on_rejection("cell_refused")
            self._log.warning("cell refused", node=session.node, cell=cell_id, reason=reason)
        queue.put_nowait(pb.ControllerMessage(welcome=welcome))

    def _pass_hello(self, session: Session, hello: pb.Hello) -> None:
        accepted = pb.Hello()
        accepted.CopyFrom(hello)
        del accepted.cells[:]
        accepted.cells.extend(cell for cell in hello.cells if cell.cell_id in session.cells)
        self._on_message("hello")
        self._sink.hello(accepted, self._clock.now())

    def _take(
        self, session: Session, message: pb.AgentMessage, queue: asyncio.Queue[pb.ControllerMessage]
    ) -> None:
        """Validate one message and pass it on."""
        now = self._clock.now()
        kind = message.WhichOneof("body")
        self._on_message(kind or "empty")
        if kind == "hello":
            rejection = self.sessions.update(session, message.hello)
            if rejection is None:
                self._pass_hello(session, message.hello)
                self._greet(session, queue)
        else:
            rejection = self._take_sequenced(session, message, queue, now)
        if session.replaced:
            return
        self._sink.alive(session.node, now)
        self._note(session, rejection)

    def _take_sequenced(
        self,
        session: Session,
        message: pb.AgentMessage,
        queue: asyncio.Queue[pb.ControllerMessage],
        now: float,
    ) -> Rejection | None:
        kind = message.WhichOneof("body")
        if kind is None or kind == "hello":
            return Rejection("empty", "a message without a body; agent and controller versions differ")
        rejection = self.sessions.take_seq(session, getattr(message, kind).seq)
        if rejection is not None:
            return rejection
        if kind == "telemetry":
            return self._take_telemetry(session, message.telemetry, now)
        if kind == "event":
            return self._take_event(session, message.event, queue, now)
        if kind == "goodbye":
            self._sink.goodbye(session.node, message.goodbye, now)
        return None

    def _take_telemetry(self, session: Session, telemetry: pb.Telemetry, now: float) -> Rejection | None:
        rejection = check_telemetry(telemetry)
        if rejection is not None:
            return rejection
        strange = [cell.cell_id for cell in telemetry.cells if cell.cell_id not in session.cells]
        if strange:
            keep = [cell for cell in telemetry.cells if cell.cell_id in session.cells]
            del telemetry.cells[:]
            telemetry.cells.extend(keep)
        self._sink.telemetry(session.node, telemetry, now)
        known = [cell_id for cell_id in strange if cell_id not in session.refused]
        if known:
            return Rejection(
                "foreign_cell", f"node {session.node} speaks for cell {known[0][:80]!r}, not in its Hello"
            )
        return None

    def _take_event(
        self, session: Session, event: pb.CellEvent, queue: asyncio.Queue[pb.ControllerMessage], now: float
    ) -> Rejection | None:
        rejection = check_event(event)
        if rejection is None and event.cell_id not in session.cells:
            rejection = Rejection("foreign_cell", f"node {session.node} has no cell {event.cell_id[:80]!r}")
        if self.sessions.take_event(session, event) and rejection is None:
            self._sink.event(session.node, event, now)
        if not queue.full():
            queue.put_nowait(pb.ControllerMessage(ack=pb.Ack(event_id=session.event_id)))
        return rejection

    def _note(self, session: Session, rejection: Rejection | None) -> None:
        """Count every rejection; log when a node's reason changes."""
        reason = rejection.reason if rejection is not None else ""
        if rejection is not None:
            self._on_rejection(rejection.reason)
        if reason and self._last_reason.get(session.node) != reason:
            assert rejection is not None
            self._log.warning("message rejected", node=session.node, reason=reason, detail=rejection.detail)
        if reason:
            self._last_reason[session.node] = reason


async def _write(context: Context, queue: asyncio.Queue[pb.ControllerMessage]) -> None:
    while True:
        await context.write(await queue.get())
