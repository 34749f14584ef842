"""What the picker adds to a request, through two stock Envoys: one that asks it and one that does not.

Requests of one token go to both at the same rate, in turn, block by block; `added_ms_p50` and
`added_ms_p99` are the differences of the quantiles of the time to the first byte of the body. The engine
answers at once, so what is measured is the way there. Controller, Envoys, engine and load share the machine.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np
from aiohttp import web

from benchmarks.result import json_path, report
from headrace_controller.picker.candidates import Candidates, Lineup
from headrace_controller.picker.guards import Guard
from headrace_controller.picker.picker import Picker
from headrace_controller.picker.service import PickerService
from headrace_controller.projection.plan import Endpoint, Endpoints, Plan
from headrace_controller.settings import CapabilitySettings, EnvoySettings, GatewaySettings, PickerSettings
from headrace_controller.wire.handlers import Handlers
from headrace_controller.wire.limits import FOR_GATEWAYS
from headrace_controller.wire.server import WireServer
from headrace_controller.xds import bootstrap
from headrace_controller.xds.server import XdsServer
from headrace_controller.xds.snapshot import SnapshotBuilder
from headrace_lab.stack.ports import free_ports
from headrace_lab.stack.program import console_script
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort

SEED: Final = 1
RPS: Final = 100.0
BLOCK: Final = 500
BLOCKS: Final = 20
CELLS: Final = 9
READY_S: Final = 30.0
REFRESH_S: Final = 0.2
MODEL: Final = "m"
GATEWAYS: Final = ("on", "off")
LOCAL: Final = "127.0.0.1"


class Trusting(Guard):
    """Never stands aside: nothing here waits as long as is predicted."""

    def on(self, now: float) -> bool:
        return True

    def saw(self, model: str, predicted_s: float, observed_s: float, now: float) -> str:
        super().saw(model, predicted_s, observed_s, now)
        return ""


async def engine(port: Connection) -> None:
    """Cells that answer one token at once, on ports of one process."""

    async def complete(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: {}\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.router.add_post("/v1/completions", complete)
    app.router.add_get("/health", _well)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=75)
    await runner.setup()
    ports = free_ports(CELLS)
    for each in ports:
        await web.TCPSite(runner, LOCAL, each).start()
    port.send(ports)
    await asyncio.get_running_loop().run_in_executor(None, port.recv)
    await runner.cleanup()


async def _well(_: web.Request) -> web.Response:
    return web.Response()


async def controller(port: Connection, xds_port: int, listens: Mapping[str, int], cells: list[int]) -> None:
    """An xDS server with a picker, as the controller has them, over a fleet that stands still."""
    clock, settings = SystemClock(), PickerSettings(enabled=True, trickle=0.0)
    picker = Picker(settings, CapabilitySettings(), np.random.default_rng(SEED))
    picker.known.guard = Trusting(float("inf"))
    handlers, xds = Handlers(), XdsServer(clock, GATEWAYS)
    xds.add_to(handlers)
    service = PickerService(picker, clock, settings, GATEWAYS)
    server = WireServer(handlers.methods() | service.methods(), clock, limits=FOR_GATEWAYS)
    await server.start(HostPort(LOCAL, xds_port))
    endpoints = Endpoints.of(Endpoint(f"c{n}", LOCAL, each, 1) for n, each in enumerate(cells))
    plan = Plan({MODEL: dict.fromkeys(GATEWAYS, endpoints)})
    for name in GATEWAYS:
        gateway = GatewaySettings(id=name, host=LOCAL, listen=HostPort(LOCAL, listens[name]))
        asks = settings if name == "on" else None
        builder = SnapshotBuilder(gateway, EnvoySettings(), epoch_ns=clock.wall_ns(), picker=asks)
        xds.publish(name, builder.build(plan))
    over = asyncio.get_running_loop().run_in_executor(None, port.recv)
    lineup = _lineup(picker, cells)
    while not over.done():
        fresh = Candidates(lineup, clock.now(), np.zeros(CELLS), np.ones(CELLS))
        picker.candidates = {("on", MODEL): fresh}
        await asyncio.wait((over,), timeout=REFRESH_S)
    await xds.close()
    await server.stop(0)
    await handlers.close()


def _lineup(picker: Picker, cells: list[int]) -> Lineup:
    ids = [f"c{number}" for number in range(CELLS)]
    slots = np.array([picker.join(cell, MODEL, 1.0, 0.0) for cell in ids], dtype=np.int64)
    return Lineup(MODEL, ids, [f"{LOCAL}:{each}" for each in cells], slots, np.full(CELLS, np.inf))


def run_engine(port: Connection) -> None:
    """Entry point of the engine's process."""
    asyncio.run(engine(port))


def run_controller(port: Connection, xds_port: int, listens: Mapping[str, int], cells: list[int]) -> None:
    """Entry point of the controller's process."""
    asyncio.run(controller(port, xds_port, listens, cells))


@asynccontextmanager
async def envoy(name: str, xds_port: int, admin: int, directory: Path) -> AsyncIterator[None]:
    """An Envoy of the gateway, until the block ends."""
    path = directory / f"{name}.yaml"
    path.write_text(bootstrap.render(name, HostPort(LOCAL, xds_port), admin))
    arguments = ("-c", str(path), "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error")
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        console_script("envoy"), *arguments, stdout=quiet, stderr=quiet
    )
    try:
        yield
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 10)


async def first_byte_ms(session: aiohttp.ClientSession, url: str) -> float:
    """One request; milliseconds to the first byte of its body."""
    body = {"model": MODEL, "prompt": "hello " * 40, "max_tokens": 1, "stream": True}
    began = time.perf_counter()
    async with session.post(url, json=body) as response:
        assert response.status == 200, response.status
        await response.content.readany()
        took = time.perf_counter() - began
        await response.read()
    return 1000 * took


async def block(session: aiohttp.ClientSession, url: str, count: int) -> list[float]:
    """So many requests at the set rate, whether or not those before are answered."""
    began, tasks = time.perf_counter(), []
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / RPS - time.perf_counter()))
        tasks.append(asyncio.create_task(first_byte_ms(session, url), name="request"))
    return list(await asyncio.gather(*tasks))


async def ready(session: aiohttp.ClientSession, url: str) -> None:
    """Wait until a gateway serves. Raises TimeoutError."""
    async with asyncio.timeout(READY_S):
        while True:
            try:
                await first_byte_ms(session, url)
                return
            except (aiohttp.ClientError, AssertionError):
                await asyncio.sleep(0.1)


async def compare(urls: Mapping[str, str], block_size: int, blocks: int) -> dict[str, list[float]]:
    """The times of both, in turn."""
    times: dict[str, list[float]] = {name: [] for name in GATEWAYS}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        for name in GATEWAYS:
            await ready(session, urls[name])
            await block(session, urls[name], block_size // 5)
        for number in range(blocks):
            for name in GATEWAYS if number % 2 else reversed(GATEWAYS):
                times[name] += await block(session, urls[name], block_size)
    return times


async def measure(block_size: int = BLOCK, blocks: int = BLOCKS) -> dict[str, list[float]]:
    """Milliseconds of each request, by whether the picker was asked."""
    context = multiprocessing.get_context("spawn")
    xds_port, *ports = free_ports(5)
    listens = dict(zip(GATEWAYS, ports[:2], strict=True))
    async with AsyncExitStack() as stack:
        cells = _start(stack, context, run_engine).recv()
        _start(stack, context, run_controller, xds_port, listens, cells)
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, admin in zip(GATEWAYS, ports[2:], strict=True):
            await stack.enter_async_context(envoy(name, xds_port, admin, directory))
        urls = {name: f"http://{LOCAL}:{port}/v1/completions" for name, port in listens.items()}
        return await compare(urls, block_size, blocks)


def _start(stack: AsyncExitStack, context: Any, target: Any, *arguments: Any) -> Connection:
    here, there = context.Pipe()
    process = context.Process(target=target, args=(there, *arguments))
    process.start()
    stack.callback(process.join, 10)
    stack.callback(here.send, None)
    connection: Connection = here
    return connection


def figures_of(times: Mapping[str, list[float]]) -> dict[str, float]:
    """The quantiles and their differences, ms."""
    found: dict[str, float] = {}
    for name in GATEWAYS:
        cut = statistics.quantiles(times[name], n=100)
        found |= {f"{name}_ms_p50": cut[49], f"{name}_ms_p99": cut[98]}
    for quantile in ("p50", "p99"):
        found[f"added_ms_{quantile}"] = found[f"on_ms_{quantile}"] - found[f"off_ms_{quantile}"]
    return found


def main() -> None:
    """Run it by itself."""
    path = json_path(__doc__ or "")
    report("picker_added", SEED, figures_of(asyncio.run(measure())), path)


if __name__ == "__main__":
    main()
