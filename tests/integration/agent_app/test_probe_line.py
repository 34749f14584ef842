"""The connection of a health probe, which nobody watches between two looks."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.http.errors import AnswerError, BrokenError, ClosedError
from headrace_agent.collectors.app.http.line import PlainLine
from tests.integration.agent_app.raw_server import EMPTY_200

ASK = b"GET /health HTTP/1.1\r\n\r\n"
Pair = tuple[PlainLine, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A line, and the engine's end of it."""
    mine, theirs = socket.socketpair()
    mine.setblocking(False)
    line = PlainLine(mine)
    yield line, theirs
    line.close()
    theirs.close()


def test_question_and_answer(pair: Pair) -> None:
    line, engine = pair
    for _ in range(3):
        assert line.ready()
        line.ask(ASK, 1000)
        assert engine.recv(1000) == ASK
        assert line.hear() is None
        engine.send(EMPTY_200[:20])
        assert line.hear() is None
        engine.send(EMPTY_200[20:])
        assert line.hear() == Answer(200, b"")
        assert line.hear() is None, "one answer a question"
    assert line.used


@pytest.mark.parametrize("unasked", [b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", b""])
def test_a_line_that_ended_or_spoke_unasked_is_not_used(pair: Pair, unasked: bytes) -> None:
    line, engine = pair
    engine.send(unasked)
    if not unasked:
        engine.close()
    assert not line.ready()


def test_what_follows_an_answer_is_not_the_next_one(pair: Pair) -> None:
    line, engine = pair
    line.ask(ASK, 1000)
    engine.send(EMPTY_200 + b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
    assert line.hear() == Answer(200, b"")
    assert not line.ready()


def test_an_end_before_and_after_an_answer_are_told_apart(pair: Pair) -> None:
    line, engine = pair
    line.ask(ASK, 1000)
    engine.send(EMPTY_200)
    assert line.hear() == Answer(200, b"")
    line.ask(ASK, 1000)
    engine.close()
    assert isinstance(line.hear(), ClosedError)
    assert line.used
    assert not line.ready()


@pytest.mark.parametrize(
    ("said", "error"),
    [(b"\x00\x01 nonsense", BrokenError), (b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", AnswerError)],
)
def test_what_is_not_taken_closes_the_line(pair: Pair, said: bytes, error: type[Exception]) -> None:
    line, engine = pair
    line.ask(ASK, 1000)
    engine.send(said)
    assert type(line.hear()) is error
    assert not line.ready()


def test_asking_over_a_dead_connection_is_its_end(pair: Pair) -> None:
    line, engine = pair
    engine.close()
    line.ask(ASK, 1000)
    assert isinstance(line.hear(), BrokenError)


def test_an_answer_that_closes_the_connection_is_an_answer(pair: Pair) -> None:
    line, engine = pair
    line.ask(ASK, 1000)
    engine.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    assert line.hear() == Answer(200, b"")
    assert not line.ready()
