"""How a session reaches an exporter over plain HTTP: one connection of the standard library's.

A host's exporter is asked the same twice a second. Pools, retries, proxies and cookies, which
are for the outer world, are most of what that costs by requests' own adapter; it serves https.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

# What a server that has tidied up an idle connection gives to the next request on it.
_TIDIED_UP: Final = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


class PlainAdapter(BaseAdapter):
    """Sends one request at a time, each after the answer before it was read or closed.

    `timeout` bounds the connecting and each wait for bytes. Raises requests' exceptions.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: tuple[str, http.client.HTTPConnection] | None = None
        self._body: _Body | None = None

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
        url = str(request.url)
        if self._body is not None:
            self._body.close()
        with _explaining():
            answer = self._ask(url, request, timeout if isinstance(timeout, int | float) else None)
        self._body = _Body(answer, self.close)
        return _response(request, answer, self._body)

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
        sock: socket.socket | None = self._kept[1].sock
        return sock

    def _ask(
        self, url: str, request: requests.PreparedRequest, timeout_s: float | None
    ) -> http.client.HTTPResponse:
        where = urlsplit(url).netloc.rpartition("@")[2]
        if self._kept is not None and self._kept[0] == where:
            try:
                return self._exchange(self._kept[1], request)
            except _TIDIED_UP:
                self.close()
        self.close()
        connection = http.client.HTTPConnection(where, timeout=timeout_s)
        self._kept = where, connection
        return self._exchange(connection, request)

    def _exchange(
        self, connection: http.client.HTTPConnection, request: requests.PreparedRequest
    ) -> http.client.HTTPResponse:
        try:
            connection.request(str(request.method), request.path_url, headers=dict(request.headers))
            return connection.getresponse()
        except BaseException:
            connection.close()
            raise


class _Body:
    """A body as it comes in; what its reading raises are requests' exceptions.

    A connection cannot go on after a body that was not read to its end: `drop` closes it then.
    """

    def __init__(self, answer: http.client.HTTPResponse, drop: Callable[[], None]) -> None:
        self._answer = answer
        self._drop = drop

    def stream(self, size: int, decode_content: bool = False) -> Iterator[bytes]:
        """Pieces of at most `size` bytes. Nothing is decoded: no encoding was asked for."""
        while self.under_way:
            with _explaining():
                piece = self._answer.read(size)
            if piece:
                yield piece
            elif self._answer.length:
                # The library says nothing where pieces are asked for.
                raise requests.exceptions.ChunkedEncodingError("the body ended early")

    @property
    def under_way(self) -> bool:
        """Whether there is more of it to come."""
        return not self._answer.isclosed()

    def close(self) -> None:
        """Read no more of it."""
        if self.under_way:
            self._answer.close()
            self._drop()


def _response(
    request: requests.PreparedRequest, answer: http.client.HTTPResponse, body: _Body
) -> requests.Response:
    response = requests.Response()
    response.status_code = answer.status
    response.reason = answer.reason
    response.headers = CaseInsensitiveDict(answer.getheaders())
    response.raw = body
    response.request = request
    response.url = str(request.url)
    return response


@contextmanager
def _explaining() -> Iterator[None]:
    """The library's exceptions as requests'."""
    try:
        yield
    except TimeoutError as error:
        raise requests.exceptions.ReadTimeout(str(error)) from error
    except http.client.IncompleteRead as error:
        raise requests.exceptions.ChunkedEncodingError(str(error)) from error
    except socket.gaierror as error:
        raise requests.exceptions.ConnectionError(f"the name cannot be resolved: {error}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise requests.exceptions.ConnectionError(str(error)) from error
