"""One message of an agent at a time: checked, counted, and passed on to the sink.

No sockets and no waiting here: messages go in, answers come out. A message that fails a check is
counted, logged once per change of reason, and changes nothing; it is still a sign of life.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace_controller.ingest.figures import check_telemetry
from headrace_controller.ingest.known import Known, NothingKnown
from headrace_controller.ingest.models import leave_models
from headrace_controller.ingest.reading import Reading, read_beat
from headrace_controller.ingest.sessions import Session, Sessions
from headrace_controller.ingest.sites import Sites
from headrace_controller.ingest.validation import (
    MAX_CELLS,
    MEMBER_EVENTS,
    Rejection,
    check_event,
    clip,
)
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import log


class Sink(Protocol):
    """Where validated messages go. `now` is the controller's monotonic clock, in seconds."""

    def hello(self, hello: pb.Hello, now: float) -> None:
        """Facts of a node's cells, without the cells and models that were refused; a known cell whose new
        facts were refused has those in force. Of its memberships all that are well-formed."""
        ...

    def telemetry(self, node: str, telemetry: pb.Telemetry, now: float, reading: Reading) -> None:
        """A full beat, and what was read of it; cells that the node neither holds nor may report for are
        left out of both."""
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


def _nothing(_: str) -> None:
    return


class Intake:
    """Takes the messages of all sessions; answers are for the agent that sent the message.

    `sites` says what nodes may claim, `known` what the fleet knows. `welcome` makes the answer to a
    Hello, without refusals.
    `on_message` hears the kind of every message, `on_rejection` the reason of every rejection.
    """

    def __init__(
        self,
        sink: Sink,
        welcome: Callable[[], pb.Welcome],
        on_message: Callable[[str], None] = _nothing,
        on_rejection: Callable[[str], None] = _nothing,
        sites: Sites | None = None,
        known: Known | None = None,
    ) -> None:
        self._known = known or NothingKnown()
        self.sessions = Sessions(sites, self._known)
        self._sink = sink
        self._welcome = welcome
        self._on_message = on_message
        self._on_rejection = on_rejection
        self._log = log.get("ingest")

    def open(self, hello: pb.Hello, local: bool) -> Session | Rejection:
        """Begin a session for the first Hello of a stream; `local`: it came from this machine."""
        return self.sessions.open(hello, local)

    def count(self, rejection: Rejection) -> None:
        """Count a rejection that was decided outside."""
        self._on_rejection(rejection.reason)

    def greet(self, session: Session, hello: pb.Hello, now: float) -> pb.ControllerMessage:
        """Pass a session's Hello on, and answer it."""
        accepted = pb.Hello()
        accepted.CopyFrom(hello)
        del accepted.cells[:]
        accepted.cells.extend(
            session.kept.get(cell.cell_id, cell) for cell in hello.cells if cell.cell_id in session.cells
        )
        session.bad_models = leave_models(accepted, self._known)
        del accepted.members[:]
        accepted.members.extend(each for each in hello.members if each.cell_id in session.members)
        self._on_message("hello")
        self._sink.hello(accepted, now)
        self._note_refused(session)
        return self._answer(session)

    def news(self) -> list[tuple[str, pb.ControllerMessage]]:
        """What agents must be told because of others' Hellos since the last call: (node, message)."""
        changed = self.sessions.review_members()
        for each in changed:
            self._note_refused(each)
        return [(each.node, self._answer(each)) for each in changed]

    def _answer(self, session: Session) -> pb.ControllerMessage:
        welcome = self._welcome()
        welcome.session = session.id
        for cell_id, why in sorted((session.refused | session.turned_away).items()):
            welcome.refused.add(cell_id=cell_id[:128], reason=why.detail)
        return pb.ControllerMessage(welcome=welcome)

    def _note_refused(self, session: Session) -> None:
        """Count every refusal, and log what is new: an agent asks again every few seconds."""
        refusals = session.refused | session.turned_away | session.bad_models
        for cell_id, why in sorted(refusals.items()):
            self._on_rejection(why.reason)
            if session.said.get(cell_id) != why:
                kind = "cell refused" if cell_id in session.refused else "member refused"
                kind = "model refused" if cell_id in session.bad_models else kind
                self._log.warning(
                    kind, node=session.node, cell=cell_id[:128], reason=why.reason, detail=why.detail
                )
        session.said = refusals

    def close(self, session: Session, now: float) -> None:
        """A session's stream has ended."""
        if not session.replaced:
            self.sessions.close(session)
            self._sink.stream_lost(session.node, now)

    def take(self, session: Session, message: pb.AgentMessage, now: float) -> pb.ControllerMessage | None:
        """Take one message; the answer to it, None where it has none.

        A session that was replaced is not listened to: what it still says is not even a sign of life.
        """
        if session.replaced:
            return None
        kind = message.WhichOneof("body")
        if kind == "liveness" and message.liveness.seq > session.seq:
            # Ten times a second from each node: what most messages are costs next to nothing.
            session.seq = message.liveness.seq
            self._on_message(kind)
            self._sink.alive(session.node, now)
            return None
        answer, rejection = self._judge(session, message, kind, now)
        self._sink.alive(session.node, now)
        self._note(session, rejection)
        return answer

    def _judge(
        self, session: Session, message: pb.AgentMessage, kind: str | None, now: float
    ) -> tuple[pb.ControllerMessage | None, Rejection | None]:
        if kind == "hello":
            rejection = self.sessions.update(session, message.hello)
            return (None, rejection) if rejection else (self.greet(session, message.hello, now), None)
        self._on_message(kind or "empty")
        if kind is None:
            return None, Rejection("empty", "a message without a body; agent and controller versions differ")
        rejection = self.sessions.take_seq(session, getattr(message, kind).seq)
        if rejection is not None:
            return None, rejection
        if kind == "event":
            rejection = self._event(session, message.event, now)
            return pb.ControllerMessage(ack=pb.Ack(event_id=session.event_id)), rejection
        if kind == "telemetry":
            return None, self._telemetry(session, message.telemetry, now)
        if kind == "goodbye":
            self._sink.goodbye(session.node, message.goodbye, now)
        return None, None

    def _telemetry(self, session: Session, telemetry: pb.Telemetry, now: float) -> Rejection | None:
        # What has too many cells is not read at all.
        reading = read_beat(telemetry) if len(telemetry.cells) <= MAX_CELLS else None
        if reading is None or not reading.sound:
            rejection = check_telemetry(telemetry)
            if rejection is not None:
                return rejection
        assert reading is not None, "a beat of too many cells was rejected"
        foreign: list[str] = []
        if not session.cells.issuperset(reading.ids):
            reading, foreign = _leave_cells(session, telemetry, reading)
        if telemetry.members:
            foreign += _leave_members(session, telemetry)
        self._sink.telemetry(session.node, telemetry, now, reading)
        if not foreign:
            return None
        told = session.refused.keys() | session.turned_away.keys()
        return _foreign(session, [cell_id for cell_id in foreign if cell_id not in told])

    def _event(self, session: Session, event: pb.CellEvent, now: float) -> Rejection | None:
        rejection = check_event(event)
        member = event.cell_id in session.reports_for
        if rejection is None and not member and event.cell_id not in session.cells:
            rejection = _foreign(session, [event.cell_id])
        if rejection is None and member and event.kind not in MEMBER_EVENTS:
            rejection = Rejection(
                "member_event",
                f"node {session.node} is only a member of cell {event.cell_id}: its engine is for the node "
                "that speaks for it to tell",
            )
        if self.sessions.take_event(session, event) and rejection is None:
            event.cause = clip(f"node {session.node}: {event.cause}" if member else event.cause)
            self._sink.event(session.node, event, now)
        return rejection

    def _note(self, session: Session, rejection: Rejection | None) -> None:
        """Count every rejection; log when a session's reason changes."""
        if rejection is None:
            return
        self._on_rejection(rejection.reason)
        if session.last_rejection != rejection.reason:
            self._log.warning(
                "message rejected", node=session.node, reason=rejection.reason, detail=rejection.detail
            )
        session.last_rejection = rejection.reason


def _leave_cells(session: Session, telemetry: pb.Telemetry, reading: Reading) -> tuple[Reading, list[str]]:
    """Leave only the cells that the session speaks for; the reading of these, and the others."""
    own = [at for at, cell_id in enumerate(reading.ids) if cell_id in session.cells]
    foreign = [cell_id for cell_id in reading.ids if cell_id not in session.cells]
    cells = [telemetry.cells[at] for at in own]
    del telemetry.cells[:]
    telemetry.cells.extend(cells)
    return reading.take(own), foreign


def _leave_members(session: Session, telemetry: pb.Telemetry) -> list[str]:
    """Leave only the members that the session may report for; the cells of the others."""
    allowed = session.reports_for
    foreign = [member.cell_id for member in telemetry.members if member.cell_id not in allowed]
    if foreign:
        own = [member for member in telemetry.members if member.cell_id in allowed]
        del telemetry.members[:]
        telemetry.members.extend(own)
    return foreign


def _foreign(session: Session, cells: list[str]) -> Rejection | None:
    if not cells:
        return None
    return Rejection(
        "foreign_cell", f"node {session.node} speaks for cell {cells[0][:80]!r}, not in its Hello"
    )
