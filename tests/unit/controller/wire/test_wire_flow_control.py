"""Windows and credit, of the connection and of each call, in both directions."""

from __future__ import annotations

import pytest

from headrace_controller.wire import frames
from headrace_controller.wire.frames import ErrorCode, Setting
from headrace_controller.wire.limits import Limits
from headrace_controller.wire.messages import Status
from tests.support.wire import HELLO, Bench, data, headers
from tests.unit.controller.wire.sent import answers, kinds


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


def test_a_peer_that_ignores_a_calls_window_loses_the_call() -> None:
    bench = Bench()
    bench.say(HELLO, headers(1))
    bench.calls[0].call.inbound._size = 10
    bench.say(data(1, b"more than ten bytes"))
    assert (frames.RST_STREAM, 1) in kinds(bench)
    assert bench.heard == [(1, "closed")]


def test_a_read_of_one_message_keeps_to_the_windows() -> None:
    bench = Bench(echo=False)
    bench.say(HELLO, headers(1))
    bench.calls[0].call.inbound._size = 100
    bench.say(data(1, b"x" * 60))
    assert (frames.WINDOW_UPDATE, 1) in kinds(bench)
    bench.say(data(1, b"x" * 101))
    assert bench.heard[1:] == [(1, "closed")]


@pytest.mark.parametrize("size", [0, 2**31 - 1])
def test_bad_credit_for_a_call_ends_the_call_alone(size: int) -> None:
    bench = Bench()
    bench.say(HELLO, headers(1), headers(3), frames.credit(1, size), data(3, b"x"))
    assert bench.heard == [(1, "closed"), (3, "x")]
