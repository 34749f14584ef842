"""Calls to one engine over HTTP: each bounded in time and size, each failure with its meaning."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from headrace_agent.collectors.exposition import oversize

MAX_JSON_BYTES = 1024 * 1024
_PROOFS = ((errno.ECONNREFUSED,), (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT))


class CallError(Exception):
    """A call without a usable answer; the text is the cause, for people."""


class RefusedError(CallError):
    """Nothing listens: the engine is not there."""


class SilentError(CallError):
    """No answer in time."""


class BrokenError(CallError):
    """The connection ended, or what came over it is no HTTP."""


class UnreachableError(CallError):
    """No connection for a reason that says nothing of the engine: names, routes, certificates."""


class AnswerError(CallError):
    """An answer came, and is not what was asked for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine answered."""

    status: int
    body: bytes


def is_refused(error: BaseException) -> bool:
    """True where a failed connect proves that nothing listens.

    A name with several addresses fails with one error made of text; it counts as refused where
    each address either refused or is of a kind that this host does not have (no IPv6).
    """
    if isinstance(error, ConnectionRefusedError):
        return True
    if not isinstance(error, OSError) or error.errno is not None:
        return False
    refused, absent = (sum(str(error).count(f"[Errno {no}]") for no in group) for group in _PROOFS)
    return refused > 0 and refused + absent == str(error).count("[Errno ")


def open_session() -> aiohttp.ClientSession:
    """A session for one engine: no cookies, no proxies, few connections."""
    connector = aiohttp.TCPConnector(limit=8, ttl_dns_cache=30)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


class EngineClient:
    """One engine's address; every call raises CallError.

    `api_key_file` is read at each call to the API, so a rotated key is taken up.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, api_key_file: Path | None = None) -> None:
        self._session = session
        self._url = url
        self._api_key_file = api_key_file

    async def get(self, path: str, timeout_s: float, limit: int = MAX_JSON_BYTES) -> Answer:
        """GET `path`; raises AnswerError where the body exceeds `limit` bytes."""
        return await self._call("GET", path, timeout_s, limit)

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

    async def _call(
        self, method: str, path: str, timeout_s: float, limit: int, body: Mapping[str, Any] | None = None
    ) -> Answer:
        try:
            async with self._session.request(
                method,
                self._url + path,
                json=body,
                headers=self._headers(path),
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                allow_redirects=False,
            ) as response:
                return Answer(response.status, await _read_bounded(response, limit))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _translate(error, f"{method} {path}", timeout_s) from error

    def _headers(self, path: str) -> dict[str, str]:
        if self._api_key_file is None or not path.startswith("/v1/"):
            return {}
        try:
            key = self._api_key_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AnswerError(f"api_key_file {self._api_key_file} cannot be read: {error}") from error
        if not key.isascii() or not key.isprintable():
            raise AnswerError(f"api_key_file {self._api_key_file} must hold one line of printable ASCII")
        return {"Authorization": f"Bearer {key}"}


async def _read_bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    if (response.content_length or 0) > limit:
        raise AnswerError(oversize(limit))
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise AnswerError(oversize(limit))
    return bytes(body)


def _translate(error: Exception, call: str, timeout_s: float) -> CallError:
    if isinstance(error, asyncio.TimeoutError):
        return SilentError(f"{call} was not answered within {timeout_s:g} s")
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.InvalidURL):
        return UnreachableError(f"no connection: {error}")
    if isinstance(error, aiohttp.ClientConnectorError):
        if is_refused(error.os_error):
            return RefusedError(f"connection to {error.host}:{error.port} refused")
        if isinstance(error.os_error, ConnectionResetError):
            return BrokenError(f"{call}: connection reset")
        return UnreachableError(f"no connection to {error.host}:{error.port}: {error.os_error}")
    if isinstance(error, ConnectionRefusedError):
        return RefusedError("connection refused")
    return BrokenError(f"{call}: {_words(error)}")


def _words(error: Exception) -> str:
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionError):
        return "the connection was closed without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer was cut short"
    return f"not an HTTP answer ({type(error).__name__})"


def hint(status: int) -> str:
    """What to do about a status of the engine's API, where that is known; else nothing."""
    return "; give the cell's api_key_file a valid key" if status in (401, 403) else ""
