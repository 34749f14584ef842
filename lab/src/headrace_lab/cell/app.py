"""A cell's HTTP application: vLLM's routes, and the lab's own under /lab/."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
from collections.abc import Awaitable, Callable

from aiohttp import web

from headrace_lab.cell.completions import Completions
from headrace_lab.cell.driver import EngineDriver
from headrace_lab.cell.errors import ApiError
from headrace_lab.cell.faults import Fault, FaultState, read_order
from headrace_lab.cell.metrics import CellMetrics
from headrace_lab.cell.settings import CellSettings
from headrace_lab.cell.versions import read_dialect
from headrace_lab.engine import Engine, EngineStats
from headrace_shared import log
from headrace_shared.clock import Clock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CELL_HEADER = "x-headrace-cell"
MAX_BODY_BYTES = 64 * 1024 * 1024
UNCOUNTED = frozenset({"/metrics", "/health", "/ping", "/version"})
"""Routes that vLLM leaves out of its HTTP counters; the lab's own are left out too."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class CellApp:
    """One cell: its engine, the task that drives it, and its routes.

    Spawn `run` before the application serves; the cell is loading until `loaded` is called.
    `die` ends the process for the EXIT fault.
    """

    def __init__(self, settings: CellSettings, clock: Clock, die: Callable[[int], object] = os._exit) -> None:
        self._settings = settings
        self._clock = clock
        self._die = die
        self._dialect = read_dialect(settings.engine_version)
        self.engine = Engine(settings.engine, settings.seed)
        self.faults = FaultState()
        self.metrics = CellMetrics(settings.model, settings.engine, self._dialect, self._stats)
        self.driver = EngineDriver(self.engine, clock, self.faults, self.metrics)
        self._started = clock.wall_ns() // 1_000_000_000
        self._loading = True
        self._log = log.get("cell").bind(cell=settings.cell_id)

    def loaded(self) -> None:
        """From now on the cell serves."""
        self._loading = False

    async def run(self) -> None:
        """Drive the engine for ever; cancel to stop."""
        await self.driver.run()

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(
            client_max_size=MAX_BODY_BYTES, middlewares=[self._count, self._explain, self._obey]
        )
        app.on_response_prepare.append(self._sign)
        chance = random.Random(self._settings.seed)  # noqa: S311
        completions = Completions(
            self._settings, self._dialect, self.driver, self._clock, itertools.count(1), chance
        )
        app.add_routes(
            [
                web.post("/v1/completions", completions.complete),
                web.post("/v1/chat/completions", completions.chat),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.get("/ping", self._health),
                web.post("/ping", self._health),
                web.get("/version", self._version),
                web.get("/metrics", self._metrics),
                web.get("/lab/load", self._load),
                web.get("/lab/faults", self._show_faults),
                web.post("/lab/faults", self._set_fault),
            ]
        )
        return app

    def _stats(self) -> EngineStats:
        return self.engine.stats(self._clock.now())

    @web.middleware
    async def _count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count the request as the engine's own instrumentation does: when its answer has ended."""
        resource = request.match_info.route.resource
        route = "none" if resource is None else resource.canonical
        if route in UNCOUNTED or route.startswith("/lab/"):
            return await handler(request)
        started = self._clock.now()
        # A client that goes away leaves no error behind: the engine counts such a request as answered.
        status = 200
        try:
            response = await handler(request)
            status = response.status
            return response
        except Exception:
            status = 500
            raise
        finally:
            self.metrics.http(route, request.method, status, self._clock.now() - started)

    @web.middleware
    async def _explain(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn errors into the engine's JSON."""
        try:
            return await handler(request)
        except ApiError as error:
            return web.json_response(error.body(self._dialect), status=error.code)
        except web.HTTPRequestEntityTooLarge:
            refusal = ApiError(413, f"The body has more than {MAX_BODY_BYTES} bytes.")
            return web.json_response(refusal.body(self._dialect), status=413)
        except web.HTTPException as error:
            return web.json_response({"detail": error.reason}, status=error.status)

    @web.middleware
    async def _obey(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Play the faults in force and the loading time, on all but the lab's own routes."""
        if not request.path.startswith("/lab/"):
            await self.faults.pass_gate()
            if self._loading and request.path.startswith("/v1/"):
                raise ApiError(503, "The model is still loading.")
        return await handler(request)

    async def _sign(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers[CELL_HEADER] = self._settings.cell_id

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=503 if self._loading or self.faults.unhealthy else 200)

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": self._dialect.version})

    async def _models(self, request: web.Request) -> web.Response:
        model = self._settings.model
        entry = {
            "id": model,
            "object": "model",
            "created": self._started,
            "owned_by": "vllm",
            "root": model,
            "parent": None,
            "max_model_len": self._settings.engine.max_model_len,
            "permission": [],
        }
        return web.json_response({"object": "list", "data": [entry]})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self.metrics.render(), headers={"Content-Type": METRICS_TYPE})

    async def _load(self, request: web.Request) -> web.Response:
        """What a GPU under this cell sees: the engine's figures, as JSON."""
        figures = dataclasses.asdict(self._stats())
        return web.json_response({"cell": self._settings.cell_id, "loading": self._loading, **figures})

    async def _show_faults(self, request: web.Request) -> web.Response:
        return web.json_response(self.faults.describe())

    async def _set_fault(self, request: web.Request) -> web.StreamResponse:
        try:
            order = read_order(await request.read())
        except ValueError as error:
            raise ApiError(400, str(error)) from error
        self._log.info("fault", fault=order.fault.value, factor=order.factor)
        self.faults.apply(order)
        response = web.json_response(self.faults.describe())
        if order.fault is Fault.EXIT:
            await response.prepare(request)
            await response.write_eof()
            self._die(1)
        return response
