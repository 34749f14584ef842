"""One HTTP answer from bytes: however they come, whatever they are."""

from __future__ import annotations

import gc
import gzip
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.app.http.answer import MAX_CHUNKS, MAX_HEAD_BYTES, Answer, AnswerParser
from headrace_agent.collectors.app.http.errors import AnswerError, BrokenError, CallError, ClosedError

LIMIT = 1000
OK = b"HTTP/1.1 200 OK\r\n"

WHOLE: dict[str, tuple[bytes, Answer, bool]] = {
    "length": (OK + b"Content-Length: 3\r\n\r\nabc", Answer(200, b"abc"), True),
    "no body": (OK + b"content-length:0\r\n\r\n", Answer(200, b""), True),
    "no reason": (b"HTTP/1.1 503\r\nContent-Length: 0\r\n\r\n", Answer(503, b""), True),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, b""), True),
    "chunks": (
        OK + b"Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
        Answer(200, b"abcde"),
        True,
    ),
    "trailer": (
        OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n",
        Answer(200, b"a"),
        True,
    ),
    "close": (OK + b"Connection: close\r\nContent-Length: 1\r\n\r\na", Answer(200, b"a"), False),
    "old": (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", Answer(200, b"a"), False),
    "old, kept": (
        b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\na",
        Answer(200, b"a"),
        True,
    ),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + OK + b"Content-Length: 1\r\n\r\na",
        Answer(200, b"a"),
        True,
    ),
    "more than asked": (OK + b"Content-Length: 1\r\n\r\nabc", Answer(200, b"a"), False),
}


def feed(parser: AnswerParser, raw: bytes, step: int) -> Answer | None:
    answer = None
    for at in range(0, len(raw), step):
        answer = parser.feed(raw[at : at + step])
        if answer is not None:
            break
    return answer


@pytest.mark.parametrize("step", [1, 2, 7, 10_000])
@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(name: str, step: int) -> None:
    raw, expected, reusable = WHOLE[name]
    parser = AnswerParser(LIMIT)
    assert feed(parser, raw, step) == expected
    if name != "more than asked":
        assert parser.reusable is reusable


def test_without_a_length_the_end_of_the_connection_is_the_end() -> None:
    parser = AnswerParser(LIMIT)
    assert parser.feed(OK + b"\r\nabc") is None
    assert parser.end() == Answer(200, b"abc")
    assert not parser.reusable


@pytest.mark.parametrize(
    "raw", [OK + b"Content-Length: 9\r\n\r\nabc", OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nab", OK, b"H"]
)
def test_an_answer_cut_short_is_none(raw: bytes) -> None:
    parser = AnswerParser(LIMIT)
    assert parser.feed(raw) is None
    with pytest.raises(BrokenError, match="cut short"):
        parser.end()


def test_a_connection_that_ends_without_a_byte_may_have_been_tidied_up() -> None:
    with pytest.raises(ClosedError):
        AnswerParser(LIMIT).end()


BROKEN = {
    "garbage": b"\x16\x03\x01\x00\xff garbage",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "status of four": b"HTTP/1.1 2000 OK\r\n\r\n",
    "status of nought": b"HTTP/1.1 000 OK\r\n\r\n",
    "upgrade": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
    "upgraded connection": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    "one length twice": OK + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
    "two lengths": OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\na",
    "negative length": OK + b"Content-Length: -5\r\n\r\n",
    "length in words": OK + b"Content-Length: five\r\n\r\n",
    "length beyond all": OK + b"Content-Length: 99999999999999999999999999\r\n\r\n",
    "length and chunks": OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "unknown transfer": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "bad chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\nabc\r\n",
    "negative chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n",
    "chunk without end": OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
    "endless chunk line": OK + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 100_000,
    "endless trailer": OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 20_000,
    "endless head": OK + b"x: y\r\n" * 20_000,
    "endless interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 4000,
}


@pytest.mark.parametrize("step", [1000, 1_000_000])
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_http_is_broken(name: str, step: int) -> None:
    with pytest.raises(BrokenError, match="not an HTTP answer"):
        feed(AnswerParser(LIMIT), BROKEN[name], step)


TOO_MUCH = {
    "length": OK + b"Content-Length: 1001\r\n\r\n",
    "chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001,
    "chunks": OK
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + b"1f4\r\n"
    + b"x" * 500
    + b"\r\n1f5\r\n"
    + b"x" * 501,
    "until the end": OK + b"\r\n" + b"x" * 1001,
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_body_beyond_the_limit_is_refused(name: str) -> None:
    with pytest.raises(AnswerError, match="not read to its end"):
        feed(AnswerParser(LIMIT), TOO_MUCH[name], 1_000_000)


def test_a_body_in_very_many_pieces_is_refused() -> None:
    """Each piece costs work, and a body of a few megabytes may come in millions of them."""
    raw = OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * (MAX_CHUNKS + 1)
    with pytest.raises(AnswerError, match="pieces"):
        feed(AnswerParser(10**9), raw, 65_536)


@pytest.mark.parametrize("encoding", [b"gzip", b"br", b"zstd", b"deflate", b"GZIP"])
def test_a_compressed_body_is_refused_unread(encoding: bytes) -> None:
    """A few kilobytes may unfold to gigabytes; none was asked for."""
    body = gzip.compress(b"\0" * 10_000_000)
    raw = OK + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (encoding, len(body)) + body
    with pytest.raises(AnswerError, match=f"compressed \\({encoding.decode().lower()}\\)"):
        AnswerParser(10**9).feed(raw)


def test_an_identity_encoding_is_none() -> None:
    raw = OK + b"Content-Encoding: identity\r\nContent-Length: 1\r\n\r\na"
    assert AnswerParser(LIMIT).feed(raw) == Answer(200, b"a")


def test_the_head_is_bounded_even_where_it_comes_byte_by_byte() -> None:
    parser = AnswerParser(LIMIT)
    with pytest.raises(BrokenError, match="64 KiB"):
        feed(parser, OK + b"a" * (MAX_HEAD_BYTES + 10), 1)


PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                OK,
                b"\r\n",
                b"\r\n\r\n",
                b"Content-Length: 5\r\n",
                b"Transfer-Encoding: chunked\r\n",
                b"HTTP/1.1 100 x\r\n\r\n",
                b"5\r\nabcde\r\n",
                b"0\r\n\r\n",
                b"0\r\n",
            ]
        ),
        st.binary(max_size=20),
    ),
    max_size=8,
)


@given(PIECES, st.integers(1, 40))
def test_any_bytes_give_an_answer_or_a_call_error(pieces: list[bytes], step: int) -> None:
    """And the same one, however they are cut."""
    raw = b"".join(pieces)

    def outcome(size: int) -> object:
        parser = AnswerParser(LIMIT)
        try:
            return feed(parser, raw, size) or parser.end()
        except CallError as error:
            return type(error)

    assert outcome(step) == outcome(10_000)


@pytest.mark.parametrize("raw", [WHOLE["length"][0], OK + b"\r\nuntil the end"], ids=["whole", "ended"])
def test_nothing_of_an_answer_is_left_to_the_garbage_collector(raw: bytes) -> None:
    """A parser that is part of a ring keeps its page until the next collection, which is rare."""
    gc.disable()
    try:
        parser = AnswerParser(LIMIT)
        assert parser.feed(raw) or parser.end()
        left = weakref.ref(parser)
        del parser
        assert left() is None
    finally:
        gc.enable()


@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=9))
def test_what_an_answer_was_read_from_may_be_used_again(pieces: list[bytes]) -> None:
    """The event loop receives everything in the same place."""
    body = b"".join(pieces)
    parser, answer, place = AnswerParser(LIMIT), None, bytearray(64)
    for piece in (OK + b"Content-Length: %d\r\n\r\n" % len(body), *pieces):
        place[:] = piece.ljust(64, b"?")
        answer = parser.feed(memoryview(place)[: len(piece)])
    place[:] = b"?" * 64
    assert answer == Answer(200, body)
