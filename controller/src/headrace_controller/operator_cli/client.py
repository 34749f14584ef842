"""The controller as the commands see it: JSON answers, or an end of the program that says what to do."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, NoReturn, cast
from urllib import error as urlerror
from urllib import request as urlrequest
from urllib.parse import quote, urlencode

import typer

from headrace_controller import __version__

TIMEOUT_S = 5.0
MAX_BYTES = 64 * 1024 * 1024
PAGE = 1000


class Code(IntEnum):
    """Exit codes; they are documented."""

    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_LET_IN = 4


class Gone(Exception):  # noqa: N818 - what became of the controller
    """The controller does not answer now; it may again."""


class Client:
    """One controller. Calls end the program where there is no answer to go on with."""

    def __init__(self, url: str, token: str = "", ca: Path | None = None) -> None:
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        # The admin port is reached directly: a proxy for the way out of the site does not know it.
        handlers: list[urlrequest.BaseHandler] = [urlrequest.ProxyHandler({})]
        if url.startswith("https:"):
            try:
                context = ssl.create_default_context(cafile=str(ca) if ca is not None else None)
            except OSError as error:
                fail(f"--ca {ca}: {error}; give a PEM file", Code.USAGE)
            handlers.append(urlrequest.HTTPSHandler(context=context))
        self._opener = urlrequest.build_opener(*handlers)

    def get(self, path: str, **query: Any) -> Any:
        """The answer to a question; `query` without what is None."""
        return self.call("GET", path, query={key: value for key, value in query.items() if value is not None})

    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, query: dict[str, Any] | None = None
    ) -> Any:
        """The JSON that the controller answers."""
        try:
            return self._call(method, path, body, query)
        except Gone as error:
            fail(str(error), Code.UNREACHABLE)

    def ask(self, path: str, **query: Any) -> Any:
        """As `get`, for those who go on without an answer. Raises Gone."""
        return self._call("GET", path, None, query)

    def cells(self, **wanted: str | None) -> Any:
        """All cells that are wanted, in as many pages as it takes; the first page's other fields."""
        whole = self.get("/api/v1/cells", limit=PAGE, **wanted)
        with self.understood():
            following = whole["next"]
            while following is not None:
                page = self.get("/api/v1/cells", limit=PAGE, after=following, **wanted)
                whole["cells"] += page["cells"]
                following = page["next"]
            whole["next"] = None
        return whole

    @contextmanager
    def open(self, path: str, timeout_s: float, **query: Any) -> Iterator[HTTPResponse]:
        """An answer that goes on. Raises Gone, also while it is read."""
        try:
            with self._send("GET", path, None, query, timeout_s) as response:
                yield response
        except (OSError, HTTPException) as error:
            raise Gone(str(error)) from error

    @contextmanager
    def understood(self) -> Iterator[None]:
        """An answer that lacks what is to be shown comes from something else, or from another version."""
        try:
            yield
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            fail(
                f"{self.url} does not answer as a controller of version {__version__} does ({error!r}); "
                "is it the listen.admin of one, and of this version?",
                Code.UNREACHABLE,
            )

    def _call(self, method: str, path: str, body: dict[str, Any] | None, query: dict[str, Any] | None) -> Any:
        try:
            with self._send(method, path, body, query, TIMEOUT_S) as response:
                return json.loads(response.read(MAX_BYTES))
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Gone(
                f"{self.url} cannot be reached: {reason}; is the controller running, and is --url its "
                "listen.admin?"
            ) from error
        except (HTTPException, ValueError, RecursionError) as error:
            raise Gone(
                f"{self.url} does not answer as a controller does ({error!r}); is it the listen.admin of one?"
            ) from error

    def _send(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        query: dict[str, Any] | None,
        timeout_s: float,
    ) -> HTTPResponse:
        data = None if body is None else json.dumps(body).encode()
        url = self.url + path + (f"?{urlencode(query)}" if query else "")
        headers = self._headers | ({"Content-Type": "application/json"} if data is not None else {})
        request = urlrequest.Request(url, data, headers, method=method)
        try:
            return cast(HTTPResponse, self._opener.open(request, timeout=timeout_s))
        except urlerror.HTTPError as error:
            self._refused(error)

    def _refused(self, error: urlerror.HTTPError) -> NoReturn:
        said = _said(error)
        if not said:
            asked = "is it the listen.admin of a controller?"
            fail(f"{self.url} answered {error.code} {error.reason}; {asked}", Code.UNREACHABLE)
        fail(said, Code.NOT_LET_IN if error.code in (401, 403) else Code.REFUSED)


def cell_path(cell: str, what: str = "") -> str:
    """Where a cell is; an id cannot leave its place in the path."""
    return f"/api/v1/cells/{quote(cell)}" + (f"/{what}" if what else "")


def fail(message: str, code: Code = Code.REFUSED) -> NoReturn:
    """End the program."""
    typer.echo(f"headrace: {message}", err=True)
    raise typer.Exit(code)


def _said(error: urlerror.HTTPError) -> str:
    """What the controller itself says of a refusal; empty where something else answered."""
    try:
        return str(json.loads(error.read(MAX_BYTES))["error"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):
        return ""
