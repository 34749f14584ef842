"""HTTP API for operators and scrapers.

Answers come from the control loop's state, read at the moment they are asked for and sent in slices.
Errors are JSON: `{"error": what and what to do}`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry

from headrace_controller.admin.access import Denied, Role
from headrace_controller.admin.answers import fault
from headrace_controller.admin.handlers import Handlers
from headrace_controller.admin.live.readers import LiveReaders
from headrace_controller.admin.openapi import document
from headrace_controller.admin.routes import ROUTES, Route
from headrace_controller.admin.streams import HEARTBEAT_S, Followers
from headrace_controller.admin.surface import ACTOR, Surface
from headrace_controller.admin.web.pages import Pages
from headrace_shared import log

MAX_BODY = 64 * 1024
PROBES = ("/healthz", "/readyz")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build(surface: Surface, registry: CollectorRegistry, heartbeat_s: float = HEARTBEAT_S) -> web.Application:
    """The aiohttp application. Its streams end when it shuts down."""
    document()  # Serialisers and schemas are made now, not while the first reader waits.
    app = web.Application(middlewares=[_errors_as_json], client_max_size=MAX_BODY)
    handlers = Handlers(surface, registry, Followers(surface.loop.events, heartbeat_s), LiveReaders(surface))
    for route in ROUTES:
        guarded = _guard(route, surface, getattr(handlers, route.handler))
        app.router.add_route(route.method, _pattern(route.path), guarded)
        if route.path in PROBES:
            # Some load balancers ask with HEAD.
            app.router.add_route("HEAD", route.path, guarded)
    Pages.packaged().add_to(app)

    async def end_streams(_: web.Application) -> None:
        surface.loop.events.close()

    app.on_shutdown.append(end_streams)
    return app


def _pattern(path: str) -> str:
    """Ids and names may hold slashes, written as they are or encoded."""
    for name in ("cell", "site", "model"):
        path = path.replace(f"{{{name}}}", f"{{{name}:.+}}")
    return path


def _guard(route: Route, surface: Surface, handler: Handler) -> Handler:
    """The handler behind its route's role, its list of query parameters, and the account of acts."""
    known = frozenset(each.name for each in route.query)

    async def guarded(request: web.Request) -> web.StreamResponse:
        access = surface.access
        try:
            actor = access.admit(request, access.needs(route.role, route.handler == "metrics"))
        except Denied as denied:
            surface.on_refused(denied.reason)
            if route.action and denied.actor is not None:
                await _account(request, route, surface, denied.status, denied)
            return _refusal(denied)
        request[ACTOR] = actor
        try:
            _refuse_unknown(request, known)
            response = await handler(request)
        except web.HTTPException as error:
            await _account(request, route, surface, error.status)
            raise
        await _account(request, route, surface, response.status)
        return response

    return guarded


async def _account(
    request: web.Request, route: Route, surface: Surface, status: int, denied: Denied | None = None
) -> None:
    if not route.action:
        return
    actor = request[ACTOR] if denied is None else denied.actor
    assert actor is not None, "nobody's acts are not accounted for"
    subject = next(iter(request.match_info.values()), "")
    try:
        detail = (await request.read()).decode("utf-8", "replace") if denied is None else str(denied)
    except web.HTTPException:
        detail = "a body that is too long"
    surface.operators.account(actor, route.action, _sound(subject), _sound(detail), status)


def _sound(text: str) -> str:
    """Text that every store and log takes."""
    return text.encode("utf-8", "replace").decode()


def _refuse_unknown(request: web.Request, known: frozenset[str]) -> None:
    """A parameter with a slip in its name must not be taken for none."""
    for name in request.query:
        if name not in known:
            said = f"the parameters are {', '.join(sorted(known))}" if known else "there are none here"
            raise web.HTTPBadRequest(text=f"parameter {name[:40]!r} is unknown; {said}")
        if len(request.query.getall(name)) > 1:
            raise web.HTTPBadRequest(text=f"parameter {name[:40]!r} stands twice; give it once")


def _refusal(denied: Denied) -> web.Response:
    headers = {"WWW-Authenticate": 'Bearer realm="headrace"'} if denied.status == 401 else None
    return fault(denied.status, str(denied), headers)


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return fault(error.status, error.text or error.reason, _kept(error))
    except (ConnectionError, TimeoutError):
        # The reader is gone, or takes nothing; there is nobody to answer.
        raise
    except Exception as error:
        logger = log.get("admin")
        logger.exception("a request failed", path=request.path, error=repr(error))
        return fault(500, "the controller could not answer; its log says why")


def _kept(error: web.HTTPException) -> dict[str, str]:
    return {name: error.headers[name] for name in ("Allow", "Retry-After") if name in error.headers}


__all__ = ["MAX_BODY", "Role", "build"]
