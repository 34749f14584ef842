"""How a session reaches an exporter over plain HTTP: one connection, read by httptools.

A host's exporter is asked the same twice a second. Pools, retries, proxies and cookies, which
are for the outer world, are most of what that costs by requests' own adapter; it serves https.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from headrace_agent.collectors.hardware.reply import EndedError, Reply, ReplyError

_READ_BYTES: Final = 64 * 1024


class PlainAdapter(BaseAdapter):
    """Sends one request at a time, each after the answer before it was read or closed.

    `timeout` bounds the connecting and each wait for bytes. Raises requests' exceptions.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: tuple[str, socket.socket] | None = None
        self._body: _Body | None = None
        self._asked: requests.PreparedRequest | None = None
        self._words = b""

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: float | tuple[float, float] | tuple[float, None] | None = None,
        verify: bool | str = True,
        cert: bytes | str | tuple[bytes | str, bytes | str] | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """`verify`, `cert` and `proxies` are not for plain HTTP to this host, and not used."""
        if self._body is not None:
            self._body.close()
        with _explaining():
            body = self._ask(request, timeout if isinstance(timeout, int | float) else None)
        self._body = body
        return _response(request, body)

    def close(self) -> None:
        """Close the connection; the next request makes another."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()

    @property
    def idle(self) -> socket.socket | None:
        """The connection that is kept for the next request, if there is one and nothing is under way."""
        if self._kept is None or (self._body is not None and self._body.under_way):
            return None
        return self._kept[1]

    def _ask(self, request: requests.PreparedRequest, timeout_s: float | None) -> _Body:
        parts = urlsplit(str(request.url))
        where = parts.netloc.rpartition("@")[2]
        if request is not self._asked:
            self._asked, self._words = request, _worded(request, where)
        if self._kept is not None and self._kept[0] == where:
            try:
                return self._exchange(self._kept[1])
            except (EndedError, ConnectionResetError, BrokenPipeError):
                self.close()  # it was tidied up while it was idle
        self.close()
        sock = socket.create_connection((str(parts.hostname), parts.port or 80), timeout_s)
        self._kept = where, sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._exchange(sock)

    def _exchange(self, sock: socket.socket) -> _Body:
        """Ask, and read as far as the end of the headers."""
        try:
            sock.sendall(self._words)
            body = _Body(sock, self.close)
            body.begin()
        except BaseException:
            self.close()
            raise
        return body


class _Body:
    """An answer as it comes in; what the reading of its body raises are requests' exceptions.

    A connection cannot go on after a body that was not read to its end: `drop` closes it then.
    """

    def __init__(self, sock: socket.socket, drop: Callable[[], None]) -> None:
        self._sock = sock
        self._drop = drop
        self.reply = Reply()

    def begin(self) -> None:
        """Read as far as the end of the headers."""
        while not self.reply.status:
            self._read()
        self._note_end()

    def stream(self, size: int, decode_content: bool = False) -> Iterator[bytes]:
        """The pieces as they come, whatever `size` is. Nothing is decoded: no encoding was asked for."""
        while True:
            while (piece := self.reply.take()) is not None:
                yield piece
            if not self.under_way:
                return
            with _explaining():
                self._read()
                self._note_end()
            yield b""  # for whoever watches the time: more than a body may come in drops

    @property
    def under_way(self) -> bool:
        """Whether there is more of it to come."""
        return not self.reply.whole

    def close(self) -> None:
        """Read no more of it."""
        if self.under_way:
            self.reply.whole = True
            self._drop()

    def _read(self) -> None:
        try:
            self.reply.feed(self._sock.recv(_READ_BYTES))
        except BaseException:
            self.close()
            raise

    def _note_end(self) -> None:
        if self.reply.whole and not self.reply.reusable:
            self._drop()


def _worded(request: requests.PreparedRequest, where: str) -> bytes:
    """A request without a body."""
    lines = [f"{request.method} {request.path_url} HTTP/1.1", f"Host: {where}"]
    lines += [f"{name}: {_text(value)}" for name, value in request.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _response(request: requests.PreparedRequest, body: _Body) -> requests.Response:
    response = requests.Response()
    response.status_code = body.reply.status
    response.headers = CaseInsensitiveDict(body.reply.headers)
    response.raw = body
    response.request = request
    response.url = str(request.url)
    return response


@contextmanager
def _explaining() -> Iterator[None]:
    """What goes wrong below as requests' exceptions."""
    try:
        yield
    except TimeoutError as error:
        raise requests.exceptions.ReadTimeout(str(error)) from error
    except EndedError as error:
        kind = (
            requests.exceptions.ChunkedEncodingError if error.begun else requests.exceptions.ConnectionError
        )
        raise kind(str(error)) from error
    except socket.gaierror as error:
        raise requests.exceptions.ConnectionError(f"the name cannot be resolved: {error}") from error
    except (OSError, ReplyError, ValueError) as error:
        raise requests.exceptions.ConnectionError(str(error)) from error
