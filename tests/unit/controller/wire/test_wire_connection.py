"""One connection without a socket: how it begins, takes its turns, waits, and ends in order."""

from __future__ import annotations

from itertools import pairwise

from headrace_controller.wire import frames
from headrace_controller.wire.frames import ErrorCode, Setting
from headrace_controller.wire.limits import Limits
from headrace_controller.wire.messages import Status
from tests.support.wire import HELLO, Bench, data, headers
from tests.unit.controller.wire.sent import kinds


def test_it_begins_with_its_settings_and_acknowledges_the_peers() -> None:
    bench = Bench()
    (first,) = bench.sent()
    assert first.kind == frames.SETTINGS
    assert frames.read_settings(first.payload)[Setting.MAX_CONCURRENT_STREAMS] == 100
    bench.say(HELLO)
    assert [(each.kind, each.flags) for each in bench.sent()] == [(frames.SETTINGS, frames.ACK)]


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
