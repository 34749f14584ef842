"""What a peer may not do, and what that costs it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace_controller.wire import frames
from headrace_controller.wire.frames import ErrorCode
from headrace_controller.wire.limits import Limits
from tests.support.wire import HELLO, OPENING, Bench, data, headers
from tests.unit.controller.wire.sent import kinds


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
