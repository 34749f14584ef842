"""Watching a controller and an Envoy that answer, change, and fall silent; timing a kill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from headrace_lab.demo.fleet import Cell, Fleet, Ports, Site
from headrace_lab.demo.kill import Order, kill_busy
from headrace_lab.demo.observe import Observer, open_session
from headrace_lab.demo.phases import last_counter
from headrace_shared.clock import SystemClock
from tests.unit.lab.demo.making import cell_json, fleet_json

CELLS = (Cell("a", 8001), Cell("b", 8002), Cell("c", 8003))
ADDRESSES = {cell.id: cell.address for cell in CELLS}
CLOCK = SystemClock()


class Fake:
    """The controller's API and Envoy's administration pages on one port."""

    def __init__(self) -> None:
        self.active = {"a": 0, "b": 0, "c": 0}
        self.unhealthy: set[str] = set()
        self.broken = False

    async def cells(self, _: web.Request) -> web.Response:
        if self.broken:
            return web.Response(text="<html>")
        return web.json_response(fleet_json(*(cell_json(cell) for cell in "abc")))

    async def metrics(self, _: web.Request) -> web.Response:
        if self.broken:
            return web.Response(status=500)
        return web.Response(text="# TYPE x_total counter\nx_total 3.0\n")

    async def clusters(self, _: web.Request) -> web.Response:
        hosts = [self._host(cell, active) for cell, active in self.active.items()]
        return web.json_response({"cluster_statuses": [{"name": "pool", "host_statuses": hosts}]})

    def _host(self, cell: str, active: int) -> dict[str, Any]:
        host, port = ADDRESSES[cell].split(":")
        return {
            "address": {"socket_address": {"address": host, "port_value": int(port)}},
            "stats": [{"name": "rq_active", "value": str(active)}],
            "health_status": {"failed_active_health_check": True} if cell in self.unhealthy else {},
        }


@asynccontextmanager
async def watching(fake: Fake) -> AsyncIterator[Observer]:
    app = web.Application()
    app.router.add_get("/api/v1/cells", fake.cells)
    app.router.add_get("/metrics", fake.metrics)
    app.router.add_get("/clusters", fake.clusters)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    fleet = Fleet("m", (Site("s", CELLS, 9001),), Ports(1, 2, port, 3, port))
    try:
        async with open_session() as session:
            yield Observer(session, fleet, CLOCK)
    finally:
        await runner.cleanup()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (another task's doing)
            await asyncio.sleep(0.01)


async def test_a_kill_is_timed_until_the_endpoint_has_left_envoy() -> None:
    fake = Fake()
    fake.active["b"] = 2
    killed: list[str] = []

    def kill(cell: str) -> None:
        killed.append(cell)
        asyncio.get_running_loop().call_later(0.15, fake.active.pop, cell)

    async with watching(fake) as observer:
        await observer.sample()
        done = await kill_busy(observer, Order(ADDRESSES, 1, kill), CLOCK)
    assert (killed, done.cell, done.active) == (["b"], "b", 2)
    assert done.detect_ms is not None
    assert 140 <= done.detect_ms < 5000
    assert done.shunned_at is None


async def test_it_waits_for_a_busy_cell() -> None:
    fake = Fake()
    asyncio.get_running_loop().call_later(0.2, fake.active.update, {"c": 1})
    async with watching(fake) as observer:
        done = await kill_busy(observer, Order(ADDRESSES, 1, fake.active.pop), CLOCK)
    assert done.cell == "c"


async def test_a_plain_envoy_only_marks_it_unhealthy() -> None:
    fake = Fake()
    fake.active["a"] = 1
    async with watching(fake) as observer:
        done = await kill_busy(observer, Order(ADDRESSES, 1, fake.unhealthy.add, removal=False), CLOCK)
    assert done.detect_ms is None
    assert done.out_of_use_ms is not None


async def test_an_api_that_answers_nonsense_is_said_and_survived() -> None:
    fake = Fake()
    async with watching(fake) as observer:
        task = asyncio.create_task(observer.watch(), name="watch")
        await until(lambda: len(observer.history.samples) >= 1)
        assert observer.trouble == ""
        count = len(observer.history.samples)
        fake.broken = True
        await until(lambda: "controller's API" in observer.trouble)
        fake.broken = False
        await until(lambda: observer.trouble == "")
        await until(lambda: len(observer.history.samples) > count)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_counter_that_cannot_be_read_is_none() -> None:
    fake = Fake()
    async with watching(fake) as observer:
        assert await last_counter(observer, "x_total") == 3
        assert await last_counter(observer, "y_total") is None
        fake.broken = True
        assert await last_counter(observer, "x_total") is None
