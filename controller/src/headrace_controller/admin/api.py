"""HTTP API for operators and scrapers.

Answers come from snapshots; a slow reader holds up nothing. Errors are JSON: `{"error": what and
what to do}`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from headrace_controller.control.view import EventView, FleetView
from headrace_shared import log

MAX_BODY = 64 * 1024
MAX_CAUSE = 500
# NaN and infinity are no JSON: a view that holds one is an error, not a page that no parser takes.
_json = partial(web.json_response, dumps=partial(json.dumps, allow_nan=False))


class Controls(Protocol):
    """What the API shows and what it may ask for."""

    def fleet_view(self) -> FleetView:
        """The region now."""
        ...

    def event_views(self, limit: int) -> Sequence[EventView]:
        """The newest changes of state, newest last."""
        ...

    def drain(self, cell_id: str, cause: str, deadline_s: float | None) -> None:
        """Begin to drain a cell. Raises KeyError (unknown cell) or ValueError (not possible now)."""
        ...

    def undrain(self, cell_id: str, cause: str) -> None:
        """Take a drain back. Raises KeyError or ValueError."""
        ...


def build(controls: Controls, registry: CollectorRegistry) -> web.Application:
    """The aiohttp application."""
    app = web.Application(middlewares=[_errors_as_json], client_max_size=MAX_BODY)
    handlers = _Handlers(controls, registry)
    app.add_routes(
        [
            web.get("/healthz", handlers.healthz),
            web.get("/readyz", handlers.readyz),
            web.get("/metrics", handlers.metrics),
            web.get("/api/v1/cells", handlers.cells),
            web.get("/api/v1/cells/{cell:.+}", handlers.cell),
            web.get("/api/v1/events", handlers.events),
            web.post("/api/v1/cells/{cell:.+}/drain", handlers.drain),
            web.post("/api/v1/cells/{cell:.+}/undrain", handlers.undrain),
        ]
    )
    return app


class _Handlers:
    def __init__(self, controls: Controls, registry: CollectorRegistry) -> None:
        self._controls = controls
        self._registry = registry

    async def healthz(self, _: web.Request) -> web.Response:
        """200 while the event loop turns."""
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.Response:
        """200 once weights are published; 503 and why before."""
        view = self._controls.fleet_view()
        return web.Response(text=f"{view.warm_start}\n", status=200 if view.published else 503)

    async def metrics(self, _: web.Request) -> web.Response:
        """Prometheus text."""
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def cells(self, _: web.Request) -> web.Response:
        """The whole region."""
        return _json(self._controls.fleet_view().to_json())

    async def cell(self, request: web.Request) -> web.Response:
        """One cell."""
        cell_id = request.match_info["cell"]
        for cell in self._controls.fleet_view().to_json()["cells"]:
            if cell["id"] == cell_id:
                return _json(cell)
        raise _unknown_cell(cell_id)

    async def events(self, request: web.Request) -> web.Response:
        """The newest changes of state; `limit` 1 to 1000."""
        text = request.query.get("limit", "100")
        if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= 1000):
            raise web.HTTPBadRequest(text=f"limit is {text[:40]!r}; give a whole number from 1 to 1000")
        return _json({"events": [event.to_json() for event in self._controls.event_views(int(text))]})

    async def drain(self, request: web.Request) -> web.Response:
        """Begin to drain: `{"cause": text, "deadline_s": seconds}`, both optional."""
        body = await _body(request, {"cause": str, "deadline_s": (int, float)})
        cause = _cause(body)
        deadline = body.get("deadline_s")
        if deadline is not None and not 0 <= deadline <= 86400:
            raise web.HTTPBadRequest(text=f"deadline_s is {deadline}; give seconds from 0 to 86400")
        return self._ask(request, lambda cell: self._controls.drain(cell, cause, deadline))

    async def undrain(self, request: web.Request) -> web.Response:
        """Take a drain back: `{"cause": text}`, optional."""
        body = await _body(request, {"cause": str})
        cause = _cause(body)
        return self._ask(request, lambda cell: self._controls.undrain(cell, cause))

    def _ask(self, request: web.Request, wish: Callable[[str], None]) -> web.Response:
        cell_id = request.match_info["cell"]
        try:
            wish(cell_id)
        except KeyError as error:
            raise _unknown_cell(cell_id) from error
        except ValueError as error:
            raise web.HTTPConflict(text=str(error)) from error
        return _json({"cell": cell_id, "accepted": True}, status=202)


def _unknown_cell(cell_id: str) -> web.HTTPNotFound:
    return web.HTTPNotFound(text=f"there is no cell {cell_id[:128]!r}; /api/v1/cells lists them")


def _cause(body: dict[str, Any]) -> str:
    cause = str(body.get("cause", "asked"))
    if len(cause) > MAX_CAUSE:
        raise web.HTTPBadRequest(text=f"cause has {len(cause)} characters; give at most {MAX_CAUSE}")
    return cause


def _refuse_other_sites(request: web.Request) -> None:
    """A browser says which page it acts for; a page from elsewhere must not drain cells here."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        raise web.HTTPForbidden(text=f"requests from pages of {origin[:80]!r} are not taken")


async def _body(request: web.Request, allowed: dict[str, Any]) -> dict[str, Any]:
    """The JSON object of a request that asks for a change; an empty body is an empty object."""
    _refuse_other_sites(request)
    raw = await request.read()
    try:
        body = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError) as error:
        raise web.HTTPBadRequest(text=f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="the body must be a JSON object")
    for key, value in body.items():
        if key not in allowed:
            raise web.HTTPBadRequest(
                text=f"{key[:40]!r} is unknown; the keys are {', '.join(sorted(allowed))}"
            )
        if not isinstance(value, allowed[key]) or isinstance(value, bool):
            raise web.HTTPBadRequest(text=f"{key} is of the wrong type")
    return body


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _json({"error": error.text}, status=error.status, headers=_allow(error))
    except Exception as error:
        logger = log.get("admin")
        logger.exception("a request failed", path=request.path, error=repr(error))
        said = "the controller could not answer; its log says why"
        return _json({"error": said}, status=500)


def _allow(error: web.HTTPException) -> dict[str, str]:
    return {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
