"""The service that agents stream to: one call an agent, from its Hello to its end.

Messages are taken in within the read that brought them. Answers wait in their call, which is bounded, so
that an agent that does not read slows nobody.
"""

from __future__ import annotations

import asyncio
from typing import Final

from google.protobuf.message import DecodeError

from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.sessions import Session
from headrace_controller.ingest.validation import Rejection
from headrace_controller.wire.call import Call, Method
from headrace_controller.wire.messages import Status
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import log
from headrace_shared.clock import Clock

SERVICE: Final = pb.DESCRIPTOR.services_by_name["CellTelemetry"].full_name
HELLO_TIMEOUT_S = 5.0
OUTGOING = 256
MAX_REMEMBERED = 1024


class TelemetryService:
    """Serves `CellTelemetry.Stream`; with `check_identity` a node is who its certificate says."""

    def __init__(self, intake: Intake, clock: Clock, check_identity: bool = False) -> None:
        self._intake = intake
        self._clock = clock
        self._check_identity = check_identity
        self._calls: dict[str, Call] = {}
        self._not_reading: set[str] = set()
        self._refused: dict[tuple[str, str], None] = {}
        self._log = log.get("ingest")

    def methods(self) -> dict[str, Method]:
        """What is served, by gRPC path."""
        return {f"/{SERVICE}/Stream": lambda call: _AgentStream(self, call)}

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        """Send a message to a node; False when it is not connected or does not keep up."""
        call = self._calls.get(node)
        return call is not None and self._put(node, call, message)

    def open(self, call: Call, first: pb.AgentMessage) -> Session | None:
        """Begin a session with a call's first message; None where it is refused, and the call ended."""
        if first.WhichOneof("body") != "hello":
            self.refuse(call, "", Rejection("no_hello", "the first message must be a Hello"))
            return None
        hello = first.hello
        session = self._stranger(call, hello.node) or self._intake.open(hello, call.peer.local)
        if isinstance(session, Rejection):
            self.refuse(call, hello.node, session)
            return None
        self._end_older(session.node)
        self._calls[session.node] = call
        return session

    def greet(self, call: Call, session: Session, hello: pb.Hello) -> None:
        """Answer the Hello that opened a session."""
        self._log.info("agent connected", node=session.node, site=session.site, cells=len(session.cells))
        self._put(session.node, call, self._intake.greet(session, hello, self._clock.now()))
        self._spread()

    def take(self, call: Call, session: Session, message: pb.AgentMessage) -> None:
        """Take a later message of a session."""
        answer = self._intake.take(session, message, self._clock.now())
        if answer is not None:
            self._put(session.node, call, answer)
            if answer.HasField("welcome"):
                self._spread()

    def close(self, call: Call, session: Session) -> None:
        """The call of a session has ended."""
        if self._calls.get(session.node) is call:
            del self._calls[session.node]
            self._not_reading.discard(session.node)
        self._intake.close(session, self._clock.now())
        self._log.info("agent gone", node=session.node, session=session.id, replaced=session.replaced)

    def refuse(
        self, call: Call, node: str, rejection: Rejection, status: Status = Status.FAILED_PRECONDITION
    ) -> None:
        """End a call with the reason; an agent that tries again and again is logged once."""
        self._intake.count(rejection)
        key = (node[:128], rejection.reason)
        if key not in self._refused:
            self._log.warning(
                "agent refused", reason=rejection.reason, detail=rejection.detail, peer=call.peer.address
            )
        self._refused[key] = None
        while len(self._refused) > MAX_REMEMBERED:
            del self._refused[next(iter(self._refused))]
        call.end(status, rejection.detail)

    def _spread(self) -> None:
        """Tell other agents what a Hello means for them."""
        for node, message in self._intake.news():
            self.send(node, message)

    def _end_older(self, node: str) -> None:
        """A stream that is replaced ends at once: one that says nothing more would stay for ever."""
        older = self._calls.get(node)
        if older is not None:
            older.end(Status.ABORTED, "a newer stream of this node has taken over")

    def _put(self, node: str, call: Call, message: pb.ControllerMessage) -> bool:
        """Queue an answer; False where there is no place. That is logged once until the agent reads again."""
        if call.queued >= OUTGOING:
            if node not in self._not_reading:
                self._log.warning("agent does not read its answers", node=node, queued=call.queued)
            self._not_reading.add(node)
            return False
        call.send(message.SerializeToString())
        # Not at the first free place: an agent that reads now and then would be told of each time.
        if call.queued <= OUTGOING // 2:
            self._not_reading.discard(node)
        return True

    def _stranger(self, call: Call, node: str) -> Rejection | None:
        """With mutual TLS, a node is who its certificate says, never its own word."""
        if not self._check_identity or node in call.peer.names:
            return None
        return Rejection(
            "wrong_identity",
            f"the certificate does not name node {node[:80]!r}; issue one with it as its name",
        )


class _AgentStream:
    """One call; it has no session before a Hello that was taken."""

    def __init__(self, service: TelemetryService, call: Call) -> None:
        self._service = service
        self._call = call
        self._session: Session | None = None
        self._patience = asyncio.get_running_loop().call_later(HELLO_TIMEOUT_S, self._give_up)

    def message(self, data: bytes) -> None:
        try:
            message = pb.AgentMessage.FromString(data)
        except DecodeError:
            unreadable = Rejection("unreadable", "the message is none of this protocol")
            self._service.refuse(self._call, "", unreadable, Status.INTERNAL)
            return
        if self._session is not None:
            self._service.take(self._call, self._session, message)
            return
        self._patience.cancel()
        self._session = session = self._service.open(self._call, message)
        if session is not None:
            self._service.greet(self._call, session, message.hello)

    def half_closed(self) -> None:
        if self._session is None:
            self._service.refuse(self._call, "", Rejection("no_hello", "the first message must be a Hello"))
        else:
            self._call.end(Status.OK)

    def closed(self) -> None:
        self._patience.cancel()
        if self._session is not None:
            self._service.close(self._call, self._session)

    def _give_up(self) -> None:
        self._call.end(Status.DEADLINE_EXCEEDED, f"no Hello within {HELLO_TIMEOUT_S:g} s")
