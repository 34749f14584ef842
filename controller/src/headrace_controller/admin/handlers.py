"""What each route does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from headrace_controller.admin.answers import (
    Accepted,
    Acts,
    DrainAccepted,
    Events,
    Explanations,
    Gateways,
    Intents,
    Pools,
    answer,
)
from headrace_controller.admin.bodies import (
    CauseBody,
    DrainBody,
    OverrideBody,
    PinBody,
    SwitchBody,
    read_body,
    whole_number,
)
from headrace_controller.admin.live.readers import LiveReaders
from headrace_controller.admin.live.region import status_of
from headrace_controller.admin.openapi import document
from headrace_controller.admin.routes import MAX_EVENTS, MAX_ID, MAX_PAGE
from headrace_controller.admin.streams import Followers, send_cells, send_text
from headrace_controller.admin.surface import ACTOR, Surface
from headrace_controller.control.fleet_view import Filter
from headrace_controller.control.intents.operators import Refused
from headrace_controller.control.intents.records import Actor
from headrace_controller.control.intents.store import StoreError
from headrace_controller.control.intents.writer import Kept
from headrace_controller.control.picking import PickerStatus
from headrace_controller.lifecycle import CellState

DEFAULT_PAGE: Final = 1000
DEFAULT_EVENTS: Final = 100
_STATES: Final = tuple(CellState.__members__)
_WHERE: Final = {
    "cell": "there is no cell {!r}; /api/v1/cells lists them",
    "site": "there is no site {!r}; /api/v1/status lists them",
    "model": "there is no pool of {!r}; /api/v1/pools lists them",
}


class Handlers:
    """One method a route of admin.routes.ROUTES."""

    def __init__(
        self, surface: Surface, registry: CollectorRegistry, followers: Followers, live: LiveReaders
    ) -> None:
        self._surface = surface
        self._registry = registry
        self._followers = followers
        self._live = live

    async def healthz(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.StreamResponse:
        reason = self._surface.views.not_ready()
        return web.Response(text=f"{reason or 'weights are published'}\n", status=503 if reason else 200)

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        return await send_text(request, self._metrics(), CONTENT_TYPE_LATEST)

    async def openapi(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(document())

    async def status(self, _: web.Request) -> web.StreamResponse:
        return answer(status_of(self._surface))

    async def cells(self, request: web.Request) -> web.StreamResponse:
        query, views = request.query, self._surface.views
        limit = whole_number(query, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
        state = query.get("state")
        if state is not None and state not in _STATES:
            raise web.HTTPBadRequest(text=f"state is {state[:40]!r}; give one of {', '.join(_STATES)}")
        chosen = Filter(query.get("site"), state, query.get("model"), query.get("node"))
        matching = views.matching(chosen)
        page, following = views.page(matching, query.get("after", ""), limit)
        frame = views.frame(len(matching), following)
        return await send_cells(request, frame, views.slices(page))

    async def cell(self, request: web.Request) -> web.StreamResponse:
        cell_id = request.match_info["cell"]
        with _known("cell", cell_id):
            return answer(self._surface.views.cell(cell_id))

    async def explain(self, request: web.Request) -> web.StreamResponse:
        cell_id, wanted = request.match_info["cell"], request.query.get("gateway")
        loop = self._surface.loop
        gateways = loop.fleet.gateways if wanted is None else (wanted,)
        if wanted is not None and wanted not in loop.fleet.gateways:
            raise web.HTTPNotFound(
                text=f"there is no gateway {wanted[:128]!r}; they are {', '.join(loop.fleet.gateways)}"
            )
        with _known("cell", cell_id):
            found = [loop.explain(cell_id, gateway) for gateway in gateways]
        return answer(Explanations(tuple(each for each in found if each is not None)))

    async def pools(self, _: web.Request) -> web.StreamResponse:
        return answer(Pools(self._surface.views.pools()))

    async def gateways(self, _: web.Request) -> web.StreamResponse:
        return answer(Gateways(self._surface.views.gateways()))

    async def events(self, request: web.Request) -> web.StreamResponse:
        limit = whole_number(request.query, "limit", DEFAULT_EVENTS, 1, MAX_EVENTS)
        log = self._surface.loop.events
        return answer(Events(tuple(log.newest(limit)), log.last_id))

    async def stream(self, request: web.Request) -> web.StreamResponse:
        return await self._followers.follow(request, self._seen(request))

    async def live(self, request: web.Request) -> web.StreamResponse:
        return await self._live.follow(request, self._seen(request))

    def _seen(self, request: web.Request) -> int:
        """The entry of the log after which a reader wants to go on."""
        last = self._surface.loop.events.last_id
        seen = whole_number(request.query, "after", last, 0, MAX_ID)
        header = request.headers.get("Last-Event-ID")
        if header is not None:
            seen = whole_number({"Last-Event-ID": header}, "Last-Event-ID", last, 0, MAX_ID)
        return min(seen, last)

    async def intents(self, _: web.Request) -> web.StreamResponse:
        return answer(Intents(self._surface.operators.standing()))

    async def audit(self, request: web.Request) -> web.StreamResponse:
        limit = whole_number(request.query, "limit", DEFAULT_EVENTS, 1, MAX_EVENTS)
        before = whole_number(request.query, "before", 0, 1, MAX_ID) or None
        try:
            acts = await self._surface.operators.acts(limit, before)
        except StoreError as error:
            raise web.HTTPServiceUnavailable(text=str(error)) from error
        return answer(Acts(tuple(acts), acts[-1].id if len(acts) == limit else None))

    # What changes something.

    async def drain(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(request, DrainBody)
        operators = self._surface.operators
        return await self._drained(
            request, lambda cell, by: operators.drain(cell, body.cause, body.deadline_s, by)
        )

    async def undrain(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(request, CauseBody)
        return await self._drained(
            request, lambda cell, by: self._surface.operators.undrain(cell, body.cause, by)
        )

    async def override(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(request, OverrideBody)
        operators = self._surface.operators
        return await _act(
            request, "cell", lambda cell, by: operators.override(cell, body.weight, body.cause, by)
        )

    async def clear_override(self, request: web.Request) -> web.StreamResponse:
        operators = self._surface.operators
        return await _act(request, "cell", lambda cell, by: operators.override(cell, None, "", by))

    async def cordon(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(request, CauseBody)
        operators = self._surface.operators
        return await _act(request, "site", lambda site, by: operators.cordon(site, True, body.cause, by))

    async def uncordon(self, request: web.Request) -> web.StreamResponse:
        operators = self._surface.operators
        return await _act(request, "site", lambda site, by: operators.cordon(site, False, "", by))

    async def pin(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(request, PinBody)
        operators = self._surface.operators
        return await _act(
            request, "model", lambda model, by: operators.pin(model, body.sites, body.cause, by)
        )

    async def unpin(self, request: web.Request) -> web.StreamResponse:
        operators = self._surface.operators
        return await _act(request, "model", lambda model, by: operators.pin(model, None, "", by))

    async def shadow(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(request, SwitchBody)
        return await _act(request, "", lambda _, by: self._surface.operators.shadow(body.on, body.cause, by))

    async def picker(self, _: web.Request) -> web.StreamResponse:
        picking = self._surface.picking
        return answer(PickerStatus() if picking is None else picking.status())

    async def switch_picker(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(request, SwitchBody)
        return await _act(request, "", lambda _, by: self._surface.operators.picker(body.on, body.cause, by))

    async def pick(self, request: web.Request) -> web.StreamResponse:
        wanted, picking = request.match_info["request"], self._surface.picking
        found = None if picking is None else picking.explain(wanted)
        if found is None:
            raise web.HTTPNotFound(
                text=f"no pick of request {wanted[:128]!r} is kept; its id is the answer's x-request-id, and "
                "only the newest are kept, of controllers with picker.enabled"
            )
        return answer(found)

    async def freeze(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(request, SwitchBody)
        return await _act(request, "", lambda _, by: self._surface.operators.freeze(body.on, body.cause, by))

    async def _drained(self, request: web.Request, wish: Callable[[str, Actor], Kept]) -> web.StreamResponse:
        cell_id = request.match_info["cell"]
        kept = await _wish(request, "cell", wish)
        try:
            state = self._surface.views.state_of(cell_id)
        except KeyError:
            state = ""
        return answer(DrainAccepted(cell_id, True, kept, state), 202)

    def _metrics(self) -> Iterator[str | bytes]:
        yield generate_latest(self._registry)
        yield from self._surface.gauges.slices()


@contextmanager
def _known(what: str, subject: str) -> Iterator[None]:
    """Turns a KeyError into a 404 that says where to look."""
    try:
        yield
    except KeyError as error:
        raise web.HTTPNotFound(text=_WHERE[what].format(subject[:128])) from error


async def _wish(request: web.Request, what: str, wish: Callable[[str, Actor], Kept]) -> bool:
    """Ask for something on behalf of who sent the request; whether it is on disk."""
    subject = request.match_info[what] if what else ""
    try:
        with _known(what, subject):
            kept = wish(subject, request[ACTOR])
    except Refused as error:
        raise web.HTTPConflict(text=str(error)) from error
    return await kept


async def _act(request: web.Request, what: str, wish: Callable[[str, Actor], Kept]) -> web.StreamResponse:
    kept = await _wish(request, what, wish)
    return answer(Accepted(request.match_info[what] if what else "", True, kept))
