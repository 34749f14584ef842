"""The gRPC service that agents stream to.

One coroutine reads a stream; a writer task of its own sends the answers from a bounded queue, so
that an agent that does not read slows nobody.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import grpc

from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.sessions import Session
from headrace_controller.ingest.validation import Rejection
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import CellTelemetryServicer
from headrace_shared import log
from headrace_shared.clock import Clock

HELLO_TIMEOUT_S = 5.0
OUTGOING = 256
MAX_REMEMBERED = 1024

Context = grpc.aio.ServicerContext[pb.AgentMessage, pb.ControllerMessage]
Answers = asyncio.Queue[pb.ControllerMessage | None]
"""What is to be sent; None ends the stream."""


class TelemetryService(CellTelemetryServicer):
    """Serves `CellTelemetry.Stream`; with `check_identity` a node is who its certificate says."""

    def __init__(self, intake: Intake, clock: Clock, check_identity: bool = False) -> None:
        self._intake = intake
        self._clock = clock
        self._check_identity = check_identity
        self._answers: dict[str, Answers] = {}
        self._not_reading: set[str] = set()
        self._refused: dict[tuple[str, str], None] = {}
        self._log = log.get("ingest")

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        """Queue a message for a node; False when it is not connected or does not keep up."""
        answers = self._answers.get(node)
        return answers is not None and self._put(node, answers, message)

    async def Stream(  # type: ignore[override]  # noqa: N802 (gRPC names it so)
        self, request_iterator: AsyncIterator[pb.AgentMessage], context: Context
    ) -> None:
        hello = await self._first(context)
        session = self._intake.open(hello, _is_local(context.peer()))
        if isinstance(session, Rejection):
            await self._refuse(context, hello.node, session)
        assert isinstance(session, Session)
        answers: Answers = asyncio.Queue(OUTGOING)
        self._end_older(session.node)
        self._answers[session.node] = answers
        writer = asyncio.create_task(_write(context, answers), name=f"answers to {session.node}")
        try:
            self._log.info("agent connected", node=session.node, site=session.site, cells=len(session.cells))
            self._put(session.node, answers, self._intake.greet(session, hello, self._clock.now()))
            self._spread()
            await self._read(context, session, answers, writer)
        finally:
            # All that must happen comes before the await: gRPC may cancel this coroutine there.
            self._close(session, answers)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _read(
        self, context: Context, session: Session, answers: Answers, writer: asyncio.Task[None]
    ) -> None:
        while not session.replaced and not writer.done():
            message = await cast(Any, context).read()
            if message is grpc.aio.EOF:
                return
            answer = self._intake.take(session, message, self._clock.now())
            if answer is not None:
                self._put(session.node, answers, answer)
                if answer.HasField("welcome"):
                    self._spread()

    def _spread(self) -> None:
        """Tell other agents what a Hello means for them."""
        for node, message in self._intake.news():
            self.send(node, message)

    def _end_older(self, node: str) -> None:
        """A stream that is replaced ends at once: one that says nothing more would stay for ever."""
        older = self._answers.get(node)
        if older is not None:
            while not older.empty():
                older.get_nowait()
            older.put_nowait(None)

    def _put(self, node: str, answers: Answers, message: pb.ControllerMessage) -> bool:
        """Queue an answer; False where there is no place. That is logged once until the agent reads again."""
        try:
            answers.put_nowait(message)
        except asyncio.QueueFull:
            if node not in self._not_reading:
                self._log.warning("agent does not read its answers", node=node, queued=answers.qsize())
            self._not_reading.add(node)
            return False
        # Not at the first free place: an agent that reads now and then would be told of each time.
        if answers.qsize() <= OUTGOING // 2:
            self._not_reading.discard(node)
        return True

    def _close(self, session: Session, answers: Answers) -> None:
        if self._answers.get(session.node) is answers:
            del self._answers[session.node]
            self._not_reading.discard(session.node)
        self._intake.close(session, self._clock.now())
        self._log.info("agent gone", node=session.node, session=session.id, replaced=session.replaced)

    async def _first(self, context: Context) -> pb.Hello:
        """The Hello that must come first; the stream is aborted where it does not."""
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                first = await cast(Any, context).read()
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no Hello within {HELLO_TIMEOUT_S:g} s")
        if first is grpc.aio.EOF or first.WhichOneof("body") != "hello":
            await self._refuse(context, "", Rejection("no_hello", "the first message must be a Hello"))
        hello: pb.Hello = first.hello
        stranger = self._stranger(context, hello.node)
        if stranger is not None:
            await self._refuse(context, hello.node, stranger)
        return hello

    async def _refuse(self, context: Context, node: str, rejection: Rejection) -> None:
        """Abort the stream; an agent that tries again and again is logged once."""
        self._intake.count(rejection)
        key = (node[:128], rejection.reason)
        if key not in self._refused:
            peer = context.peer()
            self._log.warning("agent refused", reason=rejection.reason, detail=rejection.detail, peer=peer)
        self._refused[key] = None
        while len(self._refused) > MAX_REMEMBERED:
            del self._refused[next(iter(self._refused))]
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, rejection.detail)

    def _stranger(self, context: Context, node: str) -> Rejection | None:
        """With mutual TLS, a node is who its certificate says, never its own word."""
        if not self._check_identity:
            return None
        auth = context.auth_context()
        names = [*auth.get("x509_common_name", []), *auth.get("x509_subject_alternative_name", [])]
        if node in [name.decode("utf-8", "replace") for name in cast(Sequence[bytes], names)]:
            return None
        return Rejection(
            "wrong_identity",
            f"the certificate does not name node {node[:80]!r}; issue one with it as its name",
        )


async def _write(context: Context, answers: Answers) -> None:
    while (answer := await answers.get()) is not None:
        await context.write(answer)
    await context.abort(grpc.StatusCode.ABORTED, "a newer stream of this node has taken over")


def _is_local(peer: str) -> bool:
    """Whether gRPC's name of a peer, as in `ipv4:127.0.0.1:5000`, is this machine."""
    scheme, _, rest = peer.partition(":")
    if scheme == "unix":
        return True
    host = rest.rpartition(":")[0].strip("[]").replace("%5B", "").replace("%5D", "")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
