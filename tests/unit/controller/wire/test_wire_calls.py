"""Calls without a socket: how they begin, what they carry, and every way in which they end."""

from __future__ import annotations

from typing import Any

from headrace_controller.wire import frames
from headrace_controller.wire.call import Call
from headrace_controller.wire.frames import ErrorCode, Setting
from headrace_controller.wire.messages import CallFault, Status
from tests.support.wire import HELLO, OPENING, PATH, Bench, data, headers
from tests.unit.controller.wire.sent import kinds

END = frames.END_STREAM


def test_messages_come_in_order_and_are_answered() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1), data(1, b"one", b"two"), data(1, b"three", flags=END))
    assert bench.heard == [(1, "one"), (1, "two"), (1, "three"), (1, "half closed")]
    sent = bench.sent()
    assert bench.trailers(sent)[0][1]["content-type"] == "application/grpc"
    assert b"".join(each.payload for each in sent if each.kind == frames.DATA).count(b"o") == 2


def test_several_calls_share_a_connection() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1), headers(3), data(3, b"b"), data(1, b"a"))
    bench.calls[0].call.end(Status.OK)
    bench.say(data(3, b"c"))
    assert bench.heard == [(3, "b"), (1, "a"), (1, "closed"), (3, "c")]
    assert bench.connection.calls == 1


def bench_opening() -> tuple[tuple[str, str], ...]:
    return (
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-accept-encoding", "identity"),
    )


def test_a_call_that_is_refused_has_trailers_only_and_stops_the_caller() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1))
    bench.sent()
    bench.calls[0].call.end(Status.FAILED_PRECONDITION, "no: 100 %")
    sent = bench.sent()
    assert bench.trailers(sent) == [
        (1, {**dict(bench_opening()), "grpc-status": "9", "grpc-message": "no: 100 %25"})
    ]
    assert sent[0].flags & END
    assert [(each.kind, each.payload) for each in sent[1:]] == [(frames.RST_STREAM, b"\0\0\0\0")]
    assert bench.heard == [(1, "closed")]


def test_a_caller_that_has_said_all_is_not_reset() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1), data(1, b"x", flags=END))
    bench.sent()
    bench.calls[0].call.end(Status.OK)
    assert kinds(bench) == [(frames.HEADERS, 1)]


def test_what_is_on_its_way_to_an_ended_call_is_dropped() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1))
    bench.calls[0].call.end(Status.ABORTED, "replaced")
    bench.say(data(1, b"late"), frames.credit(1, 5), frames.reset(1, ErrorCode.CANCEL))
    assert bench.heard == [(1, "closed")]
    assert bench.goodbye() is None


def test_an_unknown_method_is_said_to_be_unimplemented() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1, [*OPENING[:2], (":path", "/no.Such/Method"), *OPENING[3:]]))
    ((_, found),) = bench.trailers(bench.sent())
    assert found["grpc-status"] == "12"
    assert bench.connection.calls == 0


def test_a_request_that_is_no_grpc_gets_its_http_status() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1, [(":method", "GET"), *OPENING[1:]], frames.END_HEADERS | END))
    assert bench.trailers(bench.sent()) == [(1, {":status": "405"})]


def test_a_malformed_request_ends_its_stream_alone() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1, OPENING[:2]), headers(3), data(3, b"x"))
    assert (frames.RST_STREAM, 1) in kinds(bench)
    assert bench.heard == [(3, "x")]


def test_a_method_can_refuse_a_call_as_it_begins() -> None:
    def refuse(call: Call) -> Any:
        raise CallFault(Status.PERMISSION_DENIED, "not you")

    bench = Bench()
    bench.connection._streams._methods = {PATH: refuse}  # type: ignore[assignment]
    bench.say(HELLO, headers(1), data(1, b"x"))
    ((_, said),) = bench.trailers(bench.sent())
    assert (said["grpc-status"], said["grpc-message"]) == ("7", "not you")
    assert not bench.errors


def test_a_call_knows_the_fields_that_it_began_with() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1, (*OPENING, ("x-who", "me"))), headers(3))
    assert bench.calls[0].call.fields["x-who"] == "me"
    assert "x-who" not in bench.calls[1].call.fields


def test_an_error_of_the_program_ends_one_call() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1), headers(3))

    def fail(_: bytes) -> None:
        raise RuntimeError("broken")

    bench.calls[0].message = fail  # type: ignore[method-assign]
    bench.sent()
    bench.say(data(1, b"x"), data(3, b"y"))
    assert [str(error) for error in bench.errors] == ["broken"]
    ((stream, found),) = [each for each in bench.trailers(bench.sent()) if "grpc-status" in each[1]]
    assert (stream, found["grpc-status"]) == (1, "2")
    assert bench.heard == [(1, "closed"), (3, "y")]


def test_a_fault_that_a_method_raises_is_the_callers_answer() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1))

    def refuse(_: bytes) -> None:
        raise CallFault(Status.NOT_FOUND, "none")

    bench.calls[0].message = refuse  # type: ignore[method-assign]
    bench.say(data(1, b"x"))
    assert bench.trailers(bench.sent())[-1][1]["grpc-status"] == "5"
    assert bench.errors == []


def test_a_callers_reset_ends_its_call() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1), data(1, b"a"), frames.reset(1, ErrorCode.CANCEL), data(1, b"b"))
    assert bench.heard == [(1, "a"), (1, "closed")]


def test_a_message_that_is_cut_off_by_the_end_is_told() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1), frames.frame(frames.DATA, END, 1, b"\0\0\0\0\x09half"))
    assert bench.trailers(bench.sent())[-1][1]["grpc-message"] == "the last message is cut off"
    assert bench.heard == [(1, "closed")]


def test_a_caller_may_end_with_headers() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1), data(1, b"x"), headers(1, [("x", "y")], frames.END_HEADERS | END))
    assert bench.heard == [(1, "x"), (1, "half closed")]


def test_a_deadline_ends_a_call() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1, [*OPENING, ("grpc-timeout", "2S")]))
    bench.connection.tick(1.9)
    assert bench.connection.calls == 1
    bench.connection.tick(2.0)
    assert bench.trailers(bench.sent())[-1][1]["grpc-status"] == "4"


def test_a_call_can_end_once_its_answers_are_out() -> None:
    bench = Bench(echo=False)
    bench.say(frames.PREFACE, frames.settings({Setting.INITIAL_WINDOW_SIZE: 3}), headers(1))
    call: Call = bench.calls[0].call
    call.send(b"answer")
    call.finish(Status.OK)
    assert bench.connection.calls == 1
    bench.say(frames.credit(1, 100))
    assert bench.connection.calls == 0
    assert bench.trailers(bench.sent())[-1][1] == {"grpc-status": "0"}


def test_what_is_said_after_the_last_word_is_not_heard() -> None:
    """Else the answers to a caller that reads nothing would pile up, or the last one would be dropped."""
    bench = Bench(echo=False)
    bench.say(frames.PREFACE, frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}), headers(1))
    call = bench.calls[0].call
    call.send(b"x")
    call.finish(Status.OK)
    bench.say(data(1, b"more"), data(1, b"more", flags=END))
    assert bench.heard == []
    bench.sent()
    bench.say(frames.credit(1, 6))
    sent = bench.sent()
    assert [each.payload for each in sent if each.kind == frames.DATA] == [b"\0\0\0\0\x01x"]
    assert bench.trailers(sent)[-1][1]["grpc-status"] == "0"


def test_nothing_is_sent_for_a_call_that_has_ended() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1))
    call = bench.calls[0].call
    call.end(Status.OK)
    bench.sent()
    call.send(b"x")
    call.end(Status.ABORTED)
    call.break_off(ErrorCode.CANCEL)
    assert bench.sent() == []
    assert bench.heard == [(1, "closed")]
