"""The controller as the commands see it: JSON answers, or an end of the program that says what to do."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, NoReturn, cast
from urllib import error as urlerror
from urllib import request as urlrequest
from urllib.parse import quote, urlencode

from headrace_controller import __version__
from headrace_controller.operator_cli.terminal import warn
from headrace_shared import urls

TIMEOUT_S = 5.0
MAX_BYTES = 64 * 1024 * 1024
PAGE = 1000
CELLS = "/api/v1/cells"
DEFAULT_URL = "http://127.0.0.1:18002"


class Code(IntEnum):
    """Exit codes; they are documented."""

    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_LET_IN = 4


class Gone(Exception):  # noqa: N818 - what became of the controller
    """The controller does not answer now; it may again."""


class Refused(Exception):  # noqa: N818 - what became of the question
    """The controller, or something else there, said no; `code` is the exit code that says so."""

    def __init__(self, message: str, code: Code) -> None:
        super().__init__(message)
        self.code = code


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
        except Refused as error:
            fail(str(error), error.code)

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        body: dict[str, Any] | None = None,
        query: dict[str, Any] | None = None,
    ) -> Any:
        """As `call`, for those who go on without an answer. Raises Gone, Refused."""
        return self._call(method, path, body, query)

    def cells(self, **wanted: str | None) -> Any:
        """All cells that are wanted, in as many pages as it takes; the first page's other fields."""
        chosen = {key: value for key, value in wanted.items() if value is not None}
        with self.understood():
            return gathered(lambda query: self.call("GET", CELLS, query=query), chosen)

    @contextmanager
    def open(self, path: str, timeout_s: float, **query: Any) -> Iterator[HTTPResponse]:
        """An answer that goes on. Raises Gone, also while it is read, and Refused."""
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
            fail(misunderstood(self.url, error), Code.UNREACHABLE)

    def _call(self, method: str, path: str, body: dict[str, Any] | None, query: dict[str, Any] | None) -> Any:
        try:
            with self._send(method, path, body, query, TIMEOUT_S) as response:
                return json.loads(response.read(MAX_BYTES))
        except OSError as error:
            raise Gone(_unreachable(self.url, getattr(error, "reason", error))) from error
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
            raise Refused(f"{self.url} answered {error.code} {error.reason}; {asked}", Code.UNREACHABLE)
        if error.code not in (401, 403):
            raise Refused(said, Code.REFUSED)
        if error.code == 401:
            said += "; give one by HEADRACE_TOKEN or --token"
        raise Refused(said, Code.NOT_LET_IN)


def gathered(ask: Callable[[dict[str, Any]], Any], wanted: dict[str, Any]) -> Any:
    """All pages of cells in the first one. `ask` takes a query. Raises KeyError, TypeError where an
    answer is no page."""
    whole = ask({"limit": PAGE, **wanted})
    following = whole["next"]
    while following is not None:
        page = ask({"limit": PAGE, "after": following, **wanted})
        whole["cells"] += page["cells"]
        following = page["next"]
    whole["next"] = None
    return whole


def misunderstood(url: str, error: Exception) -> str:
    """What to say of an answer that lacks what is to be shown."""
    return (
        f"{url} does not answer as a controller of version {__version__} does ({error!r}); "
        "is it the listen.admin of one, and of this version?"
    )


def checked_url(url: str) -> str:
    """The address as it is used. Raises ValueError with what to write instead."""
    return urls.checked_url(url, DEFAULT_URL)


def checked_token(token: str) -> str:
    """The token as it is used. Raises ValueError with what is wrong."""
    if not token.isascii() or not token.isprintable():
        raise ValueError("a token has ASCII characters only, and no line break")
    return token


def cell_path(cell: str, what: str = "") -> str:
    """Where a cell is; an id cannot leave its place in the path."""
    return f"{CELLS}/{quote(cell)}" + (f"/{what}" if what else "")


def fail(message: str, code: Code = Code.REFUSED) -> NoReturn:
    """End the program."""
    warn(message)
    raise SystemExit(int(code))


def _unreachable(url: str, reason: object) -> str:
    """Why nothing answers, and what to look at."""
    said = f"{url} cannot be reached: {reason}"
    if "CERTIFICATE_VERIFY_FAILED" in str(reason):
        return f"{said}; give --ca (or HEADRACE_CA) the authority of the controller's certificate"
    if "WRONG_VERSION_NUMBER" in str(reason):
        return f"{said}; the controller has no listen.admin_tls: write http:// in --url"
    return f"{said}; is the controller running, and is --url (or HEADRACE_URL) its listen.admin?"


def _said(error: urlerror.HTTPError) -> str:
    """What the controller itself says of a refusal; empty where something else answered."""
    try:
        return str(json.loads(error.read(MAX_BYTES))["error"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):
        return ""
