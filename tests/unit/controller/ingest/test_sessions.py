"""Who may speak for which cell."""

from __future__ import annotations

from headrace_controller.ingest.sessions import MAX_REMEMBERED, Session, Sessions
from headrace_controller.ingest.validation import Rejection
from headrace_pb.v1 import telemetry_pb2 as pb


def hello(node: str, incarnation: int, *cells: str) -> pb.Hello:
    facts = [pb.CellFacts(cell_id=c, address=pb.Address(host="127.0.0.1", port=8000)) for c in cells]
    return pb.Hello(node=node, site="a", incarnation=incarnation, cells=facts)


def opened(sessions: Sessions, message: pb.Hello) -> Session:
    session = sessions.open(message)
    assert isinstance(session, Session)
    return session


def test_a_cell_held_by_a_live_node_is_refused_to_another() -> None:
    sessions = Sessions()
    first = opened(sessions, hello("n1", 1, "c1"))
    second = opened(sessions, hello("n2", 1, "c1", "c2"))
    assert second.cells == {"c2"}
    assert second.refused["c1"].reason == "cell_held"
    assert "held by node n1" in second.refused["c1"].detail
    sessions.close(first)
    again = opened(sessions, hello("n2", 1, "c1", "c2"))
    assert again.cells == {"c1", "c2"}


def test_a_restarted_agent_takes_its_cells_over() -> None:
    sessions = Sessions()
    old = opened(sessions, hello("n1", 1, "c1"))
    new = opened(sessions, hello("n1", 2, "c1"))
    assert old.replaced
    assert new.cells == {"c1"}
    sessions.close(old)
    assert sessions.of("n1") is new


def test_an_agent_that_started_earlier_is_refused() -> None:
    sessions = Sessions()
    opened(sessions, hello("n1", 2, "c1"))
    rejection = sessions.open(hello("n1", 1, "c1"))
    assert isinstance(rejection, Rejection)
    assert rejection.reason == "older_incarnation"


def test_replays_and_reordering_are_rejected() -> None:
    sessions = Sessions()
    session = opened(sessions, hello("n1", 1, "c1"))
    assert sessions.take_seq(session, 1) is None
    assert sessions.take_seq(session, 3) is None
    for seq in (3, 2, 0):
        rejection = sessions.take_seq(session, seq)
        assert rejection is not None
        assert rejection.reason == "replayed"


def test_a_replaced_stream_can_say_nothing_more() -> None:
    sessions = Sessions()
    old = opened(sessions, hello("n1", 1, "c1"))
    opened(sessions, hello("n1", 1, "c1"))
    rejection = sessions.take_seq(old, 9)
    assert rejection is not None
    assert rejection.reason == "replaced"


def test_events_are_taken_once_even_over_a_reconnect() -> None:
    sessions = Sessions()
    first = opened(sessions, hello("n1", 1, "c1"))
    assert sessions.take_event(first, pb.CellEvent(event_id=1))
    assert sessions.take_event(first, pb.CellEvent(event_id=2))
    sessions.close(first)
    second = opened(sessions, hello("n1", 1, "c1"))
    assert not sessions.take_event(second, pb.CellEvent(event_id=2))
    assert sessions.take_event(second, pb.CellEvent(event_id=3))


def test_a_new_incarnation_counts_its_events_anew() -> None:
    sessions = Sessions()
    first = opened(sessions, hello("n1", 1, "c1"))
    sessions.take_event(first, pb.CellEvent(event_id=7))
    second = opened(sessions, hello("n1", 2, "c1"))
    assert sessions.take_event(second, pb.CellEvent(event_id=1))


def test_a_later_hello_replaces_the_facts() -> None:
    sessions = Sessions()
    session = opened(sessions, hello("n1", 1, "c1", "c2"))
    assert sessions.update(session, hello("n1", 1, "c2", "c3")) is None
    assert session.cells == {"c2", "c3"}
    other = opened(sessions, hello("n2", 1, "c1"))
    assert other.cells == {"c1"}


def test_identity_cannot_change_mid_stream() -> None:
    sessions = Sessions()
    session = opened(sessions, hello("n1", 1, "c1"))
    rejection = sessions.update(session, hello("n2", 1, "c1"))
    assert rejection is not None
    assert rejection.reason == "identity_changed"
    assert session.cells == {"c1"}


def test_a_replaced_stream_cannot_claim_cells_with_a_late_hello() -> None:
    sessions = Sessions()
    old = opened(sessions, hello("n1", 1, "c1"))
    opened(sessions, hello("n1", 2, "c1"))
    rejection = sessions.update(old, hello("n1", 1, "c1", "c2"))
    assert rejection is not None
    assert rejection.reason == "replaced"
    other = opened(sessions, hello("n2", 1, "c2"))
    assert other.cells == {"c2"}


def test_another_agent_under_a_connected_name_is_refused_and_a_restarted_one_is_not() -> None:
    sessions = Sessions()
    opened(sessions, hello("n1", 1, "c1", "c2"))
    rival = sessions.open(hello("n1", 2, "c3"))
    assert isinstance(rival, Rejection)
    assert rival.reason == "node_twice"
    assert opened(sessions, hello("n1", 2, "c2", "c3")).cells == {"c2", "c3"}


def test_what_is_remembered_of_nodes_is_bounded() -> None:
    sessions = Sessions()
    for number in range(MAX_REMEMBERED + 10):
        session = opened(sessions, hello(f"n{number}", 1, f"c{number}"))
        sessions.take_event(session, pb.CellEvent(event_id=1))
        sessions.close(session)
    assert len(sessions._delivered) == MAX_REMEMBERED
