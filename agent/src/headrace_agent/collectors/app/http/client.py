"""Calls to one engine over HTTP: each bounded in time and size, each failure with its meaning."""

from __future__ import annotations

import base64
import errno
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from headrace_agent.collectors import moments
from headrace_agent.collectors.app.http import trust
from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.http.connection import Connection
from headrace_agent.collectors.app.http.dial import Dialer
from headrace_agent.collectors.app.http.errors import (
    REFUSED,
    AnswerError,
    BrokenError,
    CallError,
    ClosedError,
    OwnTroubleError,
    RefusedError,
    SilentError,
    UnreachableError,
    hint,
)
from headrace_agent.collectors.app.http.line import Line, PlainLine, SecureLine
from headrace_agent.collectors.patience import Patience

MAX_JSON_BYTES: Final = 1024 * 1024
_MAX_IDLE: Final = 2
_IN_PATHS: Final = "/%:@!$&'()*+,;=~"
_OWN_TROUBLE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class EngineClient:
    """One engine's address; every call raises CallError.

    `api_key_file` is read at each call that carries the key, so a rotated one is taken up: those to
    the API, and those to a path that was refused without it. Redirects are not followed, and no
    body is taken compressed.
    """

    def __init__(self, dialer: Dialer, url: str, api_key_file: Path | None = None) -> None:
        self._dialer = dialer
        self._prefix = quote(urlsplit(url).path, safe=_IN_PATHS)
        self._common = _common_headers(dialer, url)
        self._api_key_file = api_key_file
        self._locked: set[str] = set()
        self._idle: list[Connection] = []
        self._patiences: list[Patience] = []
        self._held: PlainLine | None = None

    async def get(
        self, path: str, timeout_s: float, limit: int = MAX_JSON_BYTES, hold_s: float = 0.0
    ) -> Answer:
        """GET `path`; raises AnswerError where the body exceeds `limit` bytes.

        An answer that comes within `hold_s` is taken in then, together with others.
        """
        answer = await self._call("GET", path, timeout_s, limit, hold_s=hold_s)
        if self.unlock(path, answer.status):
            answer = await self._call("GET", path, timeout_s, limit)
        return answer

    async def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Answer:
        """POST `body` as JSON to `path`."""
        return await self._call("POST", path, timeout_s, MAX_JSON_BYTES, body)

    async def get_json(self, path: str, timeout_s: float) -> Any:
        """The JSON that `path` answers with 200."""
        answer = await self.get(path, timeout_s)
        if answer.status != 200:
            raise AnswerError(f"GET {path} answered {answer.status}{hint(answer.status)}")
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise AnswerError(f"GET {path} answered something that is not JSON") from error

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, with_key: bool = True
    ) -> bytes:
        """The bytes of a request. Raises AnswerError where the key that it needs cannot be read."""
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", *self._common]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        asks_key = method == "POST" or path.startswith("/v1/") or path in self._locked
        if asks_key and with_key and self._api_key_file is not None:
            lines = [line for line in lines if not line.startswith("Authorization:")]
            lines.append(f"Authorization: Bearer {_read_key(self._api_key_file)}")
        return "\r\n".join([*lines, "", ""]).encode("ascii") + content

    def unlock(self, path: str, status: int) -> bool:
        """Whether a path that answered `status` is worth asking again, with the key from now on."""
        if status not in REFUSED or self._api_key_file is None or path in self._locked:
            return False
        self._locked.add(path)
        return not path.startswith("/v1/")

    async def open_line(self) -> Line:
        """A connection for health probes, which the caller closes. Raises CallError."""
        with self._explaining():
            if self._dialer.tls:
                return SecureLine(await self._dialer.dial(Connection))
            return PlainLine(await self._dialer.dial_socket())

    def close(self) -> None:
        """Close the connections that wait for another call."""
        if self._held is not None:
            self._held.close()
            self._held = None
        while self._idle:
            self._idle.pop().close()

    async def _call(
        self,
        method: str,
        path: str,
        timeout_s: float,
        limit: int,
        body: Mapping[str, Any] | None = None,
        hold_s: float = 0.0,
    ) -> Answer:
        call = f"{method} {path}"
        request = self.request(method, path, body)
        patience = self._patiences.pop() if self._patiences else Patience()
        try:
            with patience.of(timeout_s):
                return await self._exchange(request, limit, method == "GET", hold_s)
        except TimeoutError as error:
            raise SilentError(f"{call} was not answered within {timeout_s:g} s") from error
        except (BrokenError, AnswerError) as error:
            raise type(error)(f"{call}: {error}{self._dialer.hint(error)}") from error
        finally:
            self._patiences.append(patience)

    async def _exchange(self, request: bytes, limit: int, again: bool, hold_s: float) -> Answer:
        """Ask on a connection that waits or on a new one.

        One that waited may be closed just as it is asked: where asking twice does no harm, that is
        no answer yet.
        """
        if hold_s > 0 and not self._dialer.tls:
            return await self._exchange_held(request, limit, hold_s)
        while again and (waited := self._waiting()) is not None:
            try:
                return self._keep(waited, await waited.exchange(request, limit, hold_s))
            except ClosedError:
                continue
        with self._explaining():
            fresh = await self._dialer.dial(Connection)
        return self._keep(fresh, await fresh.exchange(request, limit, hold_s))

    async def _exchange_held(self, request: bytes, limit: int, hold_s: float) -> Answer:
        """The same over a connection that the event loop does not watch while the answer is to wait."""
        line, self._held = self._held, None
        try:
            heard: Answer | CallError = ClosedError("no connection waits")
            if line is not None and line.ready():
                heard = await _ask(line, request, limit, hold_s)
            if isinstance(heard, ClosedError):  # it may have been tidied up just then: that is no answer yet
                if line is not None:
                    line.close()
                with self._explaining():
                    line = PlainLine(await self._dialer.dial_socket())
                heard = await _ask(line, request, limit, hold_s)
        except BaseException:
            if line is not None:
                line.close()
            raise
        if isinstance(heard, CallError):
            raise heard
        self._held = line
        return heard

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """What a failed connection says of the engine."""
        where = f"{self._dialer.host}:{self._dialer.port}"
        try:
            yield
        except ConnectionRefusedError as error:
            raise RefusedError(f"connection to {where} refused") from error
        except ConnectionResetError as error:
            raise BrokenError("connection reset") from error
        except (OSError, ValueError) as error:
            if _is_own_trouble(error):
                raise OwnTroubleError(f"no connection to {where}: {error}") from error
            raise UnreachableError(f"no connection to {where}: {error}{trust.explain(error)}") from error

    def _waiting(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return None

    def _keep(self, connection: Connection, answer: Answer) -> Answer:
        if connection.open and len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        return answer


async def _ask(line: PlainLine, request: bytes, limit: int, hold_s: float) -> Answer | CallError:
    """What is answered; however soon it comes, it is heard `hold_s` later."""
    line.ask(request, limit)
    await moments.sleep(hold_s)
    while (heard := line.hear()) is None:
        await line.wait()
    return heard


def _common_headers(dialer: Dialer, url: str) -> list[str]:
    host = f"[{dialer.host}]" if ":" in dialer.host else _ascii(dialer.host)
    usual = dialer.port == (443 if dialer.tls else 80)
    lines = [
        f"Host: {host}" if usual else f"Host: {host}:{dialer.port}",
        "User-Agent: headrace-agent",
        "Accept: */*",
        "Accept-Encoding: identity",
    ]
    parts = urlsplit(url)
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        lines.append(f"Authorization: Basic {base64.b64encode(pair.encode()).decode()}")
    return lines


def _is_own_trouble(error: OSError | ValueError) -> bool:
    # TLS errors have numbers of their own in `errno`.
    return isinstance(error, OSError) and error.errno in _OWN_TROUBLE and not isinstance(error, ssl.SSLError)


def _ascii(host: str) -> str:
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return "invalid"  # such a name cannot be looked up either, which is where it is said


def _read_key(path: Path) -> str:
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AnswerError(f"api_key_file {path} cannot be read: {error}") from error
    if not key.isascii() or not key.isprintable():
        raise AnswerError(f"api_key_file {path} must hold one line of printable ASCII")
    return key
