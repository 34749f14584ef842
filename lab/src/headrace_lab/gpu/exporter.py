"""The simulated DCGM exporter: GPUs that follow cells, a page made at intervals, and its faults."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from enum import Enum

import aiohttp
from aiohttp import web

from headrace_lab.gpu.follower import read_load, slow_down
from headrace_lab.gpu.model import Gpu
from headrace_lab.gpu.page import GpuIdentity, GpuRow, render
from headrace_lab.gpu.settings import ExporterSettings, Placement
from headrace_lab.gpu.stresses import read_stress
from headrace_shared import log
from headrace_shared.clock import Clock
from headrace_shared.tasks import Supervisor

SLOWDOWN_GRAIN = 0.01
"""An engine is told of a slowdown that differs by more than this share from the one it was told last."""
PAGE_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ExporterFault(Enum):
    """What can go wrong: an error, a page without rows, no answer, or figures that stand still."""

    DOWN500 = "down500"
    EMPTY = "empty"
    HANG = "hang"
    STALE = "stale"
    CLEAR = "clear"


def read_fault(raw: bytes) -> ExporterFault:
    """Read `{"fault": …}`. Raises ValueError that says what to write."""
    names = [each.value for each in ExporterFault]
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the body is not valid JSON: {error}") from error
    if not isinstance(body, dict) or set(body) != {"fault"} or body["fault"] not in names:
        raise ValueError(f'write {{"fault": NAME}} with NAME one of {", ".join(names)}')
    return ExporterFault(body["fault"])


class Exporter:
    """The GPUs of one host. Run it beside its application; a dead cell makes its GPU idle."""

    def __init__(self, settings: ExporterSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        now = clock.now()
        self._gpus = [Gpu(settings.gpu, now) for _ in settings.gpus]
        self._identities = [
            GpuIdentity(i, placement.uuid, settings.hostname) for i, placement in enumerate(settings.gpus)
        ]
        self._fault = ExporterFault.CLEAR
        self._not_hanging = asyncio.Event()
        self._not_hanging.set()
        self._page = ""
        self._log = log.get("dcgm")
        self._collect()

    async def run(self) -> None:
        """Follow the cells and make the page for ever; cancel to stop."""
        async with aiohttp.ClientSession() as session, Supervisor() as tasks:
            for gpu, placement in zip(self._gpus, self._settings.gpus, strict=True):
                tasks.spawn(f"follow {placement.uuid}", self._follow(gpu, placement, session))
            tasks.spawn("collect", self._collect_for_ever())
            await tasks.wait(asyncio.Event())

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/health", self._health),
                web.post("/lab/faults", self._set_fault),
                web.post("/lab/stress", self._set_stress),
            ]
        )
        return app

    async def _follow(self, gpu: Gpu, placement: Placement, session: aiohttp.ClientSession) -> None:
        present: bool | None = None
        told = 1.0
        while True:
            load = await read_load(session, placement.cell_url)
            gpu.follow(load, self._clock.now())
            if load.present is not present:
                present, told = load.present, 1.0
                self._log.info("gpu", uuid=placement.uuid, cell=placement.cell_url, engine=present)
            factor = gpu.slowdown(self._clock.now(), self._settings.pcie_share)
            if abs(factor - told) > SLOWDOWN_GRAIN * told and await slow_down(
                session, placement.cell_url, factor
            ):
                told = factor
            await asyncio.sleep(self._settings.poll_s)

    async def _collect_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.collect_s)
            if self._fault is not ExporterFault.STALE:
                self._collect()

    def _collect(self) -> None:
        now = self._clock.now()
        self._page = render(
            [
                GpuRow(identity, gpu.parameters, gpu.figures(now))
                for identity, gpu in zip(self._identities, self._gpus, strict=True)
            ],
            health=self._settings.health,
        )

    async def _metrics(self, request: web.Request) -> web.Response:
        await self._not_hanging.wait()
        if self._fault is ExporterFault.DOWN500:
            return web.Response(status=500, text="failed to gather metrics\n")
        page = "" if self._fault is ExporterFault.EMPTY else self._page
        return web.Response(body=page.encode(), headers={"Content-Type": PAGE_TYPE})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _set_fault(self, request: web.Request) -> web.Response:
        try:
            self._fault = read_fault(await request.read())
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        self._log.info("fault", fault=self._fault.value)
        if self._fault is ExporterFault.HANG:
            self._not_hanging.clear()
        else:
            self._not_hanging.set()
        return web.json_response({"fault": self._fault.value})

    async def _set_stress(self, request: web.Request) -> web.Response:
        try:
            uuid, stress = read_stress(await request.read())
            number = next((i for i, each in enumerate(self._identities) if each.uuid == uuid), None)
            if number is None:
                raise ValueError(f"no GPU here has the UUID {uuid!r}")
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        self._gpus[number].suffer(stress, self._clock.now())
        self._log.info("stress", uuid=uuid, stress=asdict(stress))
        return web.json_response({"gpu": uuid, **asdict(stress)})
