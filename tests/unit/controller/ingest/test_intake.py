"""Messages in, answers out: what reaches the sink, and in which form."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.service import OUTGOING, TelemetryService
from headrace_controller.ingest.sessions import Session
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.support.clock import FakeClock


class Desk:
    """An intake with one open session and a sink that remembers."""

    def __init__(self) -> None:
        self.sink = Mock()
        self.rejected: list[str] = []
        self.intake = Intake(self.sink, pb.Welcome, on_rejection=self.rejected.append)
        facts = pb.CellFacts(cell_id="c1", address=pb.Address(host="127.0.0.1", port=1))
        self.hello = pb.Hello(node="n1", site="s", incarnation=1, cells=[facts])
        session = self.intake.open(self.hello, local=True)
        assert isinstance(session, Session)
        self.session = session

    def take(self, **body: Any) -> pb.ControllerMessage | None:
        return self.intake.take(self.session, pb.AgentMessage(**body), 5.0)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_causes_are_cut_to_a_measure(desk: Desk) -> None:
    """Causes are kept in histories and logs; one agent must not fill the memory with them."""
    kind = pb.CELL_EVENT_KIND_ENGINE_DOWN
    desk.take(event=pb.CellEvent(seq=1, event_id=1, cell_id="c1", kind=kind, cause="x" * 1_000_000))
    (_, event, _), _ = desk.sink.event.call_args
    assert len(event.cause) == 1024


def test_an_unknown_kind_of_event_is_acknowledged_and_not_passed_on(desk: Desk) -> None:
    """An older controller must not have a newer agent repeat its event for ever."""
    answer = desk.take(event=pb.CellEvent(seq=1, event_id=1, cell_id="c1", kind=250))
    assert answer is not None
    assert answer.ack.event_id == 1
    desk.sink.event.assert_not_called()
    assert desk.rejected == ["unknown_event"]


def test_a_replaced_session_is_not_even_a_sign_of_life(desk: Desk) -> None:
    assert isinstance(desk.intake.open(desk.hello, local=True), Session)
    assert desk.take(liveness=pb.Liveness(seq=1)) is None
    assert desk.take(hello=desk.hello) is None
    desk.sink.alive.assert_not_called()
    desk.sink.hello.assert_not_called()


def test_closing_a_replaced_session_is_no_loss_of_the_node(desk: Desk) -> None:
    desk.intake.open(desk.hello, local=True)
    desk.intake.close(desk.session, 5.0)
    desk.sink.stream_lost.assert_not_called()


def test_an_agent_that_does_not_read_is_told_of_once_until_it_reads_again() -> None:
    service = TelemetryService(Mock(), FakeClock())
    call = Mock(queued=0)
    call.send.side_effect = lambda _: setattr(call, "queued", call.queued + 1)
    service._calls["n1"] = call
    with capture_logs() as logs:
        told = [service.send("n1", pb.ControllerMessage()) for _ in range(OUTGOING + 3)]
        assert told == [True] * OUTGOING + [False] * 3
        call.queued -= 1
        assert service.send("n1", pb.ControllerMessage())
        assert not service.send("n1", pb.ControllerMessage())
        assert len(logs) == 1, "one answer read now and then is no reading"
        call.queued = 0
        for _ in range(OUTGOING + 3):
            service.send("n1", pb.ControllerMessage())
    assert [line["event"] for line in logs] == ["agent does not read its answers"] * 2


def test_a_model_with_an_impossible_name_is_refused_alone(desk: Desk) -> None:
    """Whoever may load an adapter into an engine must not be able to take its cells out of service."""
    again = pb.Hello()
    again.CopyFrom(desk.hello)
    again.cells[0].models.extend(pb.ModelFacts(id=name) for name in ("m", "evil\n", "n"))
    answer = desk.take(hello=again)
    assert answer is not None
    assert not answer.welcome.refused
    (passed, _), _ = desk.sink.hello.call_args
    assert [[model.id for model in cell.models] for cell in passed.cells] == [["m", "n"]]
    assert desk.rejected == ["bad_model"]
    desk.take(telemetry=pb.Telemetry(seq=1, cells=[pb.CellBeat(cell_id="c1")]))
    assert desk.rejected == ["bad_model"], "the cell is spoken for as before"
