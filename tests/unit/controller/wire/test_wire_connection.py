"""One connection without a socket: calls, their ends, flow control, and what ends the connection."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.wire import frames
from headrace_controller.wire.call import Call
from headrace_controller.wire.frames import ErrorCode, Setting
from headrace_controller.wire.limits import Limits
from headrace_controller.wire.messages import CallFault, Status
from tests.support.wire import HELLO, OPENING, PATH, Bench, data, headers

END = frames.END_STREAM


def kinds(bench: Bench) -> list[tuple[int, int]]:
    return [(each.kind, each.stream) for each in bench.sent()]


def answers(bench: Bench) -> dict[int, bytes]:
    """The bytes of DATA by stream."""
    found: dict[int, bytes] = {}
    for each in bench.sent():
        if each.kind == frames.DATA:
            found[each.stream] = found.get(each.stream, b"") + each.payload
    return found


def test_it_begins_with_its_settings_and_acknowledges_the_peers() -> None:
    bench = Bench()
    (first,) = bench.sent()
    assert first.kind == frames.SETTINGS
    assert frames.read_settings(first.payload)[Setting.MAX_CONCURRENT_STREAMS] == 100
    bench.say(HELLO)
    assert [(each.kind, each.flags) for each in bench.sent()] == [(frames.SETTINGS, frames.ACK)]


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


def bench_opening() -> tuple[tuple[str, str], ...]:
    return (
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-accept-encoding", "identity"),
    )


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


def test_header_fields_may_come_in_pieces() -> None:
    block = headers(1)[9:]
    bench = Bench()
    pieces = [
        frames.frame(frames.HEADERS, 0, 1, block[:4]),
        frames.frame(frames.CONTINUATION, 0, 1, block[4:9]),
        frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[9:]),
    ]
    bench.say(HELLO, *pieces, data(1, b"x"))
    assert bench.heard == [(1, "x")]


def test_header_fields_may_be_padded_and_ranked() -> None:
    block = headers(1)[9:]
    flags = frames.END_HEADERS | frames.PADDED | frames.WITH_PRIORITY
    bench = Bench()
    bench.say(HELLO, frames.frame(frames.HEADERS, flags, 1, b"\x03" + b"\0\0\0\0\x10" + block + b"\0\0\0"))
    assert bench.connection.calls == 1


def test_a_deadline_ends_a_call() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1, [*OPENING, ("grpc-timeout", "2S")]))
    bench.connection.tick(1.9)
    assert bench.connection.calls == 1
    bench.connection.tick(2.0)
    assert bench.trailers(bench.sent())[-1][1]["grpc-status"] == "4"


def test_answers_keep_to_the_peers_windows_and_go_on_with_its_credit() -> None:
    bench = Bench(echo=False)
    bench.say(frames.PREFACE, frames.settings({Setting.INITIAL_WINDOW_SIZE: 10}), headers(1))
    call = bench.calls[0].call
    call.send(b"0123456789")
    assert len(answers(bench)[1]) == 10
    assert call.queued == 1
    bench.say(frames.credit(1, 3))
    assert answers(bench) == {1: b"567"}
    bench.say(frames.settings({Setting.INITIAL_WINDOW_SIZE: 100}))
    assert answers(bench) == {1: b"89"}
    assert call.queued == 0


def test_a_window_that_shrinks_below_nothing_holds_answers_back() -> None:
    bench = Bench(echo=False)
    bench.say(frames.PREFACE, frames.settings({Setting.INITIAL_WINDOW_SIZE: 10}), headers(1))
    call = bench.calls[0].call
    call.send(b"12345")
    bench.say(frames.settings({Setting.INITIAL_WINDOW_SIZE: 2}))
    bench.sent()
    call.send(b"x")
    bench.say(frames.credit(1, 8))
    assert answers(bench) == {}
    bench.say(frames.credit(1, 6))
    assert answers(bench) == {1: b"\0\0\0\0\x01x"}


def test_a_message_is_not_begun_where_it_may_soon_go_whole() -> None:
    """A call that ends with a message half sent ends with another status than it was given."""
    bench = Bench(echo=False)
    bench.say(HELLO, headers(1))
    call = bench.calls[0].call
    for _ in range(7):
        call.send(b"x" * 10_000)
    assert len(answers(bench)[1]) == 6 * 10_005
    assert call.queued == 1
    call.end(Status.ABORTED)
    assert bench.trailers(bench.sent())[-1][1]["grpc-status"] == "10"


def test_calls_share_the_connections_window() -> None:
    bench = Bench(echo=False)
    bench.say(
        frames.PREFACE, frames.settings({Setting.INITIAL_WINDOW_SIZE: 1_000_000}), headers(1), headers(3)
    )
    for each in bench.calls:
        each.call.send(b"x" * 40_000)
    assert sum(map(len, answers(bench).values())) == 65_535
    bench.say(frames.credit(0, 100_000))
    assert sum(map(len, answers(bench).values())) == 2 * 40_005 - 65_535


def test_answers_to_a_peer_that_does_not_read_wait() -> None:
    bench = Bench(echo=False)
    bench.say(HELLO, headers(1))
    bench.sent()
    bench.connection.set_writable(False)
    bench.calls[0].call.send(b"x")
    assert bench.sent() == []
    bench.connection.set_writable(True)
    assert answers(bench) == {1: b"\0\0\0\0\x01x"}


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


def test_what_all_calls_of_a_peer_leave_unread_is_bounded() -> None:
    bench = Bench(Limits(unread=100), echo=False)
    bench.say(frames.PREFACE, frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    bench.say(*map(headers, (1, 3, 5, 7)))
    first, second, third, fourth = (each.call for each in bench.calls)
    first.send(b"x" * 60)
    second.send(b"x" * 60)
    bench.sent()
    third.send(b"x")
    assert bench.trailers(bench.sent())[-1][1]["grpc-status"] == "8"
    assert bench.heard == [(5, "closed")]
    bench.say(frames.reset(1, ErrorCode.CANCEL), frames.credit(3, 30))
    fourth.send(b"x")
    assert bench.connection.outgoing.waiting == 35 + 6
    bench.say(frames.credit(3, 100), frames.credit(7, 100))
    assert bench.connection.outgoing.waiting == 0
    assert not fourth.ended


def test_credit_goes_back_as_the_peer_uses_its_window() -> None:
    bench = Bench(echo=False)
    bench.say(HELLO, headers(1))
    bench.sent()
    given = {0: 0, 1: 0}
    for _ in range(40):
        bench.say(data(1, b"x" * 16_000))
        for each in bench.sent():
            assert each.kind == frames.WINDOW_UPDATE
            given[each.stream] += int.from_bytes(each.payload, "big")
    assert all(16_005 * 40 - 65_535 < size <= 16_005 * 40 for size in given.values())


def test_a_peer_that_ignores_a_calls_window_loses_the_call() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1))
    bench.calls[0].call.inbound._size = 10
    bench.say(data(1, b"more than ten bytes"))
    assert (frames.RST_STREAM, 1) in kinds(bench)
    assert bench.heard == [(1, "closed")]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (lambda: frames.frame(frames.PING, 0, 0, b"1234"), ErrorCode.FRAME_SIZE_ERROR),
        (lambda: frames.frame(frames.PING, 0, 1, b"12345678"), ErrorCode.PROTOCOL_ERROR),
        (lambda: frames.frame(frames.SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
        (lambda: frames.frame(frames.SETTINGS, frames.ACK, 0, b"123456"), ErrorCode.FRAME_SIZE_ERROR),
        (lambda: data(3, b"x"), ErrorCode.PROTOCOL_ERROR),
        (lambda: data(0, b"x"), ErrorCode.PROTOCOL_ERROR),
        (lambda: headers(2), ErrorCode.PROTOCOL_ERROR),
        (lambda: headers(0), ErrorCode.PROTOCOL_ERROR),
        (lambda: frames.frame(frames.HEADERS, frames.END_HEADERS, 3, b"\x80"), ErrorCode.COMPRESSION_ERROR),
        (
            lambda: frames.frame(frames.HEADERS, frames.END_HEADERS, 3, b"\xff" * 6000),
            ErrorCode.COMPRESSION_ERROR,
        ),
        (lambda: frames.frame(frames.CONTINUATION, 4, 1), ErrorCode.PROTOCOL_ERROR),
        (lambda: frames.frame(frames.HEADERS, 0, 3) + data(1, b"x"), ErrorCode.PROTOCOL_ERROR),
        (lambda: frames.frame(frames.PUSH_PROMISE, 0, 1), ErrorCode.PROTOCOL_ERROR),
        (lambda: frames.reset(5, ErrorCode.CANCEL), ErrorCode.PROTOCOL_ERROR),
        (lambda: frames.frame(frames.RST_STREAM, 0, 1, b"1"), ErrorCode.FRAME_SIZE_ERROR),
        (lambda: frames.credit(0, 0), ErrorCode.PROTOCOL_ERROR),
        (lambda: frames.credit(0, 2**31 - 1), ErrorCode.FLOW_CONTROL_ERROR),
        (lambda: frames.credit(7, 1), ErrorCode.PROTOCOL_ERROR),
        (lambda: frames.frame(frames.PRIORITY, 0, 0, b"12345"), ErrorCode.PROTOCOL_ERROR),
        (lambda: frames.frame(frames.GOAWAY, 0, 0, b"1234"), ErrorCode.FRAME_SIZE_ERROR),
        (lambda: frames.frame(frames.DATA, frames.PADDED, 1, b"\x09x"), ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_what_breaks_the_protocol_ends_the_connection(said: Callable[[], bytes], code: ErrorCode) -> None:
    bench = Bench()
    bench.say(HELLO, headers(1), said(), data(1, b"not heard"))
    assert bench.goodbye() == code
    assert bench.connection.finished
    assert bench.heard == [(1, "closed")]


@pytest.mark.parametrize("size", [0, 2**31 - 1])
def test_bad_credit_for_a_call_ends_the_call_alone(size: int) -> None:
    bench = Bench()
    bench.say(HELLO, headers(1), headers(3), frames.credit(1, size), data(3, b"x"))
    assert bench.heard == [(1, "closed"), (3, "x")]


def test_nothing_may_come_before_the_peers_settings() -> None:
    bench = Bench()
    bench.say(frames.PREFACE, headers(1))
    assert bench.goodbye() == ErrorCode.PROTOCOL_ERROR


def test_more_calls_than_allowed_are_refused_and_others_go_on() -> None:
    bench = Bench(Limits(streams=2))
    bench.say(HELLO, headers(1), headers(3), headers(5), data(1, b"x"))
    assert (frames.RST_STREAM, 5) in kinds(bench)
    assert bench.heard == [(1, "x")]


@pytest.mark.parametrize(
    "flood",
    [
        frames.frame(frames.PING, 0, 0, b"12345678"),
        frames.settings({}),
        frames.frame(0x77, 0, 1, b"unknown"),
        frames.frame(frames.PRIORITY, 0, 1, b"12345"),
        frames.frame(frames.DATA, 0, 1),
        frames.credit(1, 1),
        frames.reset(1, ErrorCode.CANCEL),
    ],
    ids=["ping", "settings", "unknown", "priority", "empty data", "credit", "reset"],
)
def test_a_flood_ends_the_connection_and_a_trickle_does_not(flood: bytes) -> None:
    limits = Limits(overhead=50, overhead_rate=10.0)
    bench = Bench(limits)
    bench.say(HELLO, headers(1))
    for second in range(100):
        bench.now = float(second)
        bench.say(flood * 9)
    assert bench.goodbye() is None
    bench.say(flood * 60)
    assert bench.goodbye() == ErrorCode.ENHANCE_YOUR_CALM


def test_calls_opened_and_reset_without_end_end_the_connection() -> None:
    bench = Bench(Limits(overhead=60, overhead_rate=1.0))
    bench.say(HELLO)
    for stream in range(1, 101, 2):
        bench.say(headers(stream), frames.reset(stream, ErrorCode.CANCEL))
    assert bench.goodbye() == ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("end", [0, frames.END_HEADERS])
def test_too_many_header_fields_end_the_connection(end: int) -> None:
    bench = Bench(Limits(header_list=1000, header_block=2000))
    block = headers(1, [*OPENING, ("x", "y" * 1900 if end else "~" * 5000)])[9:]
    bench.say(HELLO, frames.frame(frames.HEADERS, end, 1, block))
    assert bench.goodbye() == ErrorCode.ENHANCE_YOUR_CALM


def test_continuations_without_end_end_the_connection() -> None:
    bench = Bench()
    bench.say(HELLO, frames.frame(frames.HEADERS, 0, 1), frames.frame(frames.CONTINUATION, 0, 1))
    assert bench.goodbye() == ErrorCode.ENHANCE_YOUR_CALM


def test_a_turn_is_bounded_and_nothing_is_lost_over_turns() -> None:
    bench = Bench(Limits(turn=8), echo=False)
    bench.say(HELLO, headers(1))
    bench.connection.receive(data(1, *[b"x"] * 20) + data(1, b"y" * 1000, b"z"), 0.0)
    turns, heard = 1, [len(bench.heard)]
    while bench.connection.turn(0.0):
        turns += 1
        heard.append(len(bench.heard))
    assert turns >= 3
    assert max(after - before for before, after in pairwise([0, *heard])) <= 8
    assert [what[:1] for _, what in bench.heard] == ["x"] * 20 + ["y", "z"]


def test_a_silent_peer_is_asked_and_dropped_without_an_answer() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1))
    bench.sent()
    bench.connection.tick(4.9)
    assert bench.sent() == []
    bench.connection.tick(5.0)
    (ping,) = bench.sent()
    bench.now = 6.0
    bench.say(frames.frame(frames.PING, frames.ACK, 0, ping.payload))
    bench.connection.tick(10.9)
    assert bench.sent() == []
    bench.connection.tick(11.0)
    assert kinds(bench) == [(frames.PING, 0)]
    bench.connection.tick(15.9)
    assert not bench.connection.finished
    bench.connection.tick(16.0)
    assert bench.connection.finished
    assert bench.heard == [(1, "closed")]


def test_a_peer_that_never_begins_is_dropped() -> None:
    bench = Bench()
    bench.say(frames.PREFACE[:5])
    bench.connection.tick(9.9)
    assert not bench.connection.finished
    bench.connection.tick(10.0)
    assert bench.connection.finished


def test_a_connection_without_a_call_ends_politely() -> None:
    bench = Bench(Limits(idle_s=20.0, ping_after_s=100.0))
    bench.say(HELLO, headers(1))
    bench.connection.tick(19.0)
    bench.calls[0].call.end(Status.OK)
    bench.sent()
    bench.connection.tick(38.9)
    assert not bench.connection.finished
    bench.connection.tick(39.0)
    assert bench.connection.finished
    assert bench.goodbye() == ErrorCode.NO_ERROR


def test_draining_refuses_new_calls_and_ends_the_open_ones_in_order() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1))
    bench.sent()
    bench.connection.drain()
    assert bench.goodbye() == ErrorCode.NO_ERROR
    bench.say(headers(3), data(1, b"still heard"))
    assert (frames.RST_STREAM, 3) in kinds(bench)
    bench.connection.end_calls(Status.UNAVAILABLE, "stopping")
    assert bench.trailers(bench.sent())[-1][1]["grpc-status"] == "14"
    assert bench.connection.finished
    assert bench.heard == [(1, "still heard"), (1, "closed")]


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


SPOKEN = [
    headers(1),
    headers(3),
    headers(5, OPENING[:2]),
    data(1, b"a", b"bc"),
    data(3, b"d" * 300),
    data(1, b"end", flags=END),
    data(7, b"x"),
    frames.frame(frames.DATA, frames.PADDED, 1, b"\x02" + b"\0\0\0\0\x01p" + b"\0\0"),
    frames.reset(3, ErrorCode.CANCEL),
    frames.credit(0, 1000),
    frames.credit(1, 1000),
    frames.frame(frames.PING, 0, 0, b"12345678"),
    frames.settings({Setting.INITIAL_WINDOW_SIZE: 5}),
    frames.settings({Setting.INITIAL_WINDOW_SIZE: 500}),
    frames.frame(0x55, 3, 9, b"unknown"),
]


def outcome(sent: bytes, cuts: list[int]) -> Any:
    bench = Bench()
    for start, end in pairwise([0, *cuts, len(sent)]):
        bench.say(sent[start:end])
    return bench.heard, bench.connection.outgoing.take(), bench.connection.finished, bench.connection.fault


@given(st.lists(st.sampled_from(SPOKEN), max_size=15), st.data())
def test_any_split_of_the_bytes_has_the_same_effect(spoken: list[bytes], data: st.DataObject) -> None:
    sent = HELLO + b"".join(spoken)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=12)))
    assert outcome(sent, cuts) == outcome(sent, [])


@given(st.lists(st.sampled_from([*SPOKEN, data(1, b""), data(3, b"e" * 9000)]), max_size=30))
def test_one_frame_in_a_read_has_the_same_effect(spoken: list[bytes]) -> None:
    """The usual read goes a way of its own."""
    sent = HELLO + b"".join(spoken)
    cuts, at = [len(HELLO)], len(HELLO)
    for each in spoken:
        at += len(each)
        cuts.append(at)
    assert outcome(sent, cuts) == outcome(sent, [])


def test_a_read_of_one_message_keeps_to_the_windows() -> None:
    bench = Bench(echo=False)
    bench.say(HELLO, headers(1))
    bench.calls[0].call.inbound._size = 100
    bench.say(data(1, b"x" * 60))
    assert (frames.WINDOW_UPDATE, 1) in kinds(bench)
    bench.say(data(1, b"x" * 101))
    assert bench.heard[1:] == [(1, "closed")]


@given(st.lists(st.one_of(st.sampled_from(SPOKEN), st.binary(max_size=40)), max_size=12))
def test_random_bytes_end_the_connection_at_worst(spoken: list[bytes]) -> None:
    bench = Bench()
    bench.say(HELLO, *spoken)
    assert bench.errors == []
    heard = bench.heard
    for stream in {stream for stream, _ in heard}:
        story = [what for each, what in heard if each == stream]
        assert "closed" not in story[:-1], "nothing is heard of a call that has ended"
    bench.connection.close()
    assert bench.connection.calls == 0
    assert bench.room.used == 0
    assert sum(what == "closed" for _, what in bench.heard) == len(bench.calls)


@given(
    st.lists(
        st.builds(
            frames.frame,
            st.integers(0, 11),
            st.sampled_from([0, 1, 4, 5, 8, 9, 0x20, 0x2D]),
            st.integers(0, 5),
            st.binary(max_size=30),
        ),
        max_size=12,
    )
)
def test_random_frames_end_the_connection_at_worst(spoken: list[bytes]) -> None:
    bench = Bench()
    bench.say(HELLO, headers(1), *spoken)
    assert bench.errors == []
    bench.connection.close()
    assert bench.room.used == 0


def test_a_call_that_is_held_gets_no_credit_and_its_connection_does() -> None:
    bench = Bench(echo=False)
    bench.say(HELLO, headers(1))
    call = bench.calls[0].call
    call.hold(True)
    bench.sent()
    bench.say(*[data(1, b"x" * 10_000)] * 4)
    given = [each.stream for each in bench.sent() if each.kind == frames.WINDOW_UPDATE]
    assert set(given) == {0}
    call.hold(False)
    assert [each.stream for each in bench.sent() if each.kind == frames.WINDOW_UPDATE] == [1]


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
