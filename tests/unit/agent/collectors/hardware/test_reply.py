"""An exporter's HTTP answer, as far as it goes and no further."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.hardware.reply import (
    MAX_CHUNKS,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    EndedError,
    Reply,
    ReplyError,
)

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def body(reply: Reply) -> bytes:
    pieces = []
    while (piece := reply.take()) is not None:
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_answer_is_the_same_however_it_is_cut(size: int) -> None:
    reply, raw = Reply(), HEAD + b"abcdef"
    for at in range(0, len(raw), size):
        assert not reply.whole
        reply.feed(raw[at : at + size])
    assert (reply.status, reply.whole, reply.reusable, body(reply)) == (200, True, True, b"abcdef")
    assert reply.headers == [("Content-Length", "6")]


def test_an_interim_answer_is_not_the_answer() -> None:
    reply = Reply()
    reply.feed(b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n")
    assert (reply.status, reply.whole) == (0, False)
    reply.feed(HEAD + b"abcdef")
    assert (reply.status, reply.whole, body(reply)) == (200, True, b"abcdef")
    assert reply.headers == [("Content-Length", "6")]


@pytest.mark.parametrize("surplus", [HEAD, b"more"])
def test_after_more_than_an_answer_the_connection_carries_no_other(surplus: bytes) -> None:
    reply = Reply()
    reply.feed(HEAD + b"abcdef" + surplus)
    assert (reply.whole, reply.reusable, body(reply)) == (True, False, b"abcdef")


def test_where_nothing_says_how_long_a_body_is_the_end_of_the_connection_does() -> None:
    reply = Reply()
    reply.feed(b"HTTP/1.1 200 OK\r\n\r\nabc")
    assert not reply.whole
    reply.feed(b"")
    assert (reply.whole, reply.reusable, body(reply)) == (True, False, b"abc")


@pytest.mark.parametrize(
    ("came", "begun"), [(b"", False), (b"HTTP/1.1 200 OK\r\nConte", False), (HEAD + b"abc", True)]
)
def test_a_connection_that_ends_too_soon_says_how_far_it_came(came: bytes, begun: bool) -> None:
    reply = Reply()
    if came:
        reply.feed(came)
    with pytest.raises(EndedError) as caught:
        reply.feed(b"")
    assert caught.value.begun is begun


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * (MAX_HEADERS + 1) + b"\r\n", "too many headers"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * MAX_HEAD_BYTES, "no end"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * (MAX_CHUNKS + 1),
            "too many pieces",
        ),
        (CHUNKED + b"5;" + b"x" * (MAX_HEAD_BYTES + 1000), "no end"),
        (CHUNKED + b"0\r\nx: " + b"y" * (MAX_HEAD_BYTES + 1000), "no end"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", "not an HTTP"),
    ],
)
def test_what_is_made_to_keep_its_reader_busy_is_refused(raw: bytes, why: str) -> None:
    reply = Reply()

    def feed_all() -> None:
        for at in range(0, len(raw), 60_000):
            reply.feed(raw[at : at + 60_000])

    with pytest.raises(ReplyError, match=why):
        feed_all()
    with pytest.raises(ReplyError):
        reply.feed(HEAD)
