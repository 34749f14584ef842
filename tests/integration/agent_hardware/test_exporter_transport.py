"""The connection that is kept to an exporter: used again, made anew, and never out of step."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest

from headrace_agent.collectors.hardware.exporter import Exporter, FetchError
from headrace_shared.clock import SystemClock

END = b""  # the server closes the connection
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"


class Server:
    """Gives each connection its script: one answer per request, END to close. Counts connections."""

    def __init__(self, scripts: Sequence[Sequence[bytes]]) -> None:
        self.connections = 0
        self._scripts = scripts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/metrics"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        for script in self._scripts:
            connection, _ = self._listener.accept()
            connection.settimeout(10)
            self.connections += 1
            with connection, suppress(OSError):  # the client may go at any time
                self._talk(connection, script)

    def _talk(self, connection: socket.socket, script: Sequence[bytes]) -> None:
        for answer in script:
            if answer == END:
                return
            if not connection.recv(65_536):
                return
            connection.sendall(answer)
        connection.recv(1)

    @contextmanager
    def running(self, timeout_s: float = 5.0) -> Iterator[Exporter]:
        """An exporter's client for it."""
        self._thread.start()
        exporter = Exporter(self.url, timeout_s, SystemClock())
        try:
            yield exporter
        finally:
            exporter.close()
            self._listener.close()


class DrippingServer(Server):
    """Writes the end of its script's only answer byte by byte, and ends the connection then."""

    def _talk(self, connection: socket.socket, script: Sequence[bytes]) -> None:
        (answer,) = script
        connection.recv(65_536)
        connection.sendall(answer[:-60])
        for byte in answer[-60:]:
            time.sleep(0.05)
            connection.sendall(bytes([byte]))


def test_one_connection_serves_many_fetches() -> None:
    server = Server([[OK + b"abc", OK + b"def", OK + b"ghi"]])
    with server.running() as exporter:
        assert [exporter.fetch() for _ in range(3)] == [b"abc", b"def", b"ghi"]
        assert server.connections == 1


def test_a_connection_that_was_tidied_up_is_made_anew_without_a_failure() -> None:
    server = Server([[OK + b"abc", END], [OK + b"def"]])
    with server.running() as exporter:
        assert [exporter.fetch(), exporter.fetch()] == [b"abc", b"def"]


def test_a_connection_that_is_said_to_end_is_not_kept() -> None:
    server = Server(
        [[b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"], [OK + b"def"]]
    )
    with server.running() as exporter:
        assert exporter.fetch() == b"abc"
        assert exporter.idle is None
        assert exporter.fetch() == b"def"
        assert exporter.idle is not None


def test_a_server_that_closes_without_an_answer_is_not_asked_for_ever() -> None:
    server = Server([[OK + b"abc", END], [END], [OK + b"def"]])
    with server.running() as exporter:
        exporter.fetch()
        with pytest.raises(FetchError, match="the connection failed"):
            exporter.fetch()
        assert exporter.fetch() == b"def"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 700000\r\n\r\n" + OK * 17_500, "HTTP 500"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 80\r\n\r\n" + OK * 2, "compressed"),
    ],
)
def test_an_answer_that_is_not_read_is_never_taken_for_the_next(answer: bytes, said: str) -> None:
    server = Server([[answer], [OK + b"abc"]])
    with server.running() as exporter:
        with pytest.raises(FetchError, match=said):
            exporter.fetch()
        assert exporter.fetch() == b"abc"


@pytest.mark.parametrize("beside", [b"5;", b"0\r\nx: "])
def test_what_comes_beside_a_body_is_not_awaited_for_ever(beside: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server = DrippingServer([[head + beside + b"y" * 60]])
    with server.running(timeout_s=0.4) as exporter, pytest.raises(FetchError, match="did not end within"):
        exporter.fetch()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
    ],
)
def test_a_body_that_ends_early_is_cut_short(answer: bytes) -> None:
    server = Server([[answer, END], [OK + b"abc"]])
    with server.running() as exporter:
        with pytest.raises(FetchError, match="cut short"):
            exporter.fetch()
        assert exporter.fetch() == b"abc"


def test_chunks_and_a_body_until_the_end_are_read_whole() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    server = Server([[chunked, b"HTTP/1.1 200 OK\r\n\r\ndef", END]])
    with server.running() as exporter:
        assert [exporter.fetch(), exporter.fetch()] == [b"abc", b"def"]


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n"]
)
def test_what_is_no_http_is_a_failure_in_words(answer: bytes) -> None:
    server = Server([[answer, END]])
    with server.running() as exporter, pytest.raises(FetchError, match="the connection failed"):
        exporter.fetch()
