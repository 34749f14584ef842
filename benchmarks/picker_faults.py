"""What a picker that is away costs: requests, and time, through two stock Envoys under the same load.

One asks the picker, the other goes by the weights. The process that holds picker and xDS server is stopped
(SIGSTOP) for seconds, stalled for a second again and again, and killed (SIGKILL) and started anew. Of each
span: `failed`, requests of either gateway that got no 200; `p99_ms` of both to the first byte; and
`excess_ms_p99`, their difference, which is to stay below 60. `heard` are the picker's messages that Envoy
took, `passed_over` the requests that went on without it, and `back_s` is the longest that it took to be
heard again. Controller, Envoys, engines and load share the machine.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from benchmarks.picker_added import GATEWAYS, LOCAL, MODEL, SEED, envoy, ready, run_controller, run_engine
from benchmarks.result import json_path, report
from headrace_lab.stack.ports import free_ports

RPS: Final = 60.0
ROUNDS: Final = 4
SPAN_S: Final = 5.0
STALL_S: Final = 1.0
PICKED_STAT: Final = re.compile(r"ext_proc\.(\w+): (\d+)")
BACK_S: Final = 60.0


@dataclass
class Spans:
    """What was seen, by span and gateway; a request belongs to the span in which it was sent."""

    times: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    current: str = ""

    def note(self, span: str, gateway: str, ms: float | None) -> None:
        """A request is over; `ms` None = it failed. Those without a span do not count."""
        if not span:
            return
        self.failed.setdefault(span, 0)
        if ms is None:
            self.failed[span] += 1
        else:
            self.times.setdefault((span, gateway), []).append(ms)


class Controller:
    """The process with the picker."""

    def __init__(self, *arguments: Any) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._arguments = arguments
        self.start()

    def start(self) -> None:
        self._pipe, there = self._context.Pipe()
        self._process = self._context.Process(target=run_controller, args=(there, *self._arguments))
        self._process.start()

    def signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.join(10)

    def end(self) -> None:
        self._pipe.send(None)
        self._process.join(10)


async def one(session: aiohttp.ClientSession, url: str) -> float | None:
    """One request; milliseconds to the first byte of its body, None where it failed."""
    body = {"model": MODEL, "prompt": "hello " * 40, "max_tokens": 1, "stream": True}
    began = time.perf_counter()
    try:
        async with session.post(url, json=body) as response:
            await response.content.readany()
            took = time.perf_counter() - began
            await response.read()
            return 1000 * took if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError):
        return None


@asynccontextmanager
async def load(session: aiohttp.ClientSession, urls: dict[str, str], spans: Spans) -> AsyncIterator[None]:
    """Send to both gateways at the set rate until the block ends, whether or not answers come."""
    over, tasks = asyncio.Event(), set[asyncio.Task[None]]()

    async def ask(gateway: str, span: str) -> None:
        spans.note(span, gateway, await one(session, urls[gateway]))

    async def send() -> None:
        began, number = time.perf_counter(), 0
        while not over.is_set():
            for gateway in urls:
                task = asyncio.create_task(ask(gateway, spans.current), name="request")
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            number += 1
            await asyncio.sleep(max(0.0, began + number / RPS - time.perf_counter()))

    sending = asyncio.create_task(send(), name="send")
    try:
        yield
    finally:
        over.set()
        await sending
        await asyncio.gather(*tasks)


async def picked(session: aiohttp.ClientSession, admin: int) -> dict[str, int]:
    """The counters of the filter that asks the picker."""
    async with session.get(f"http://{LOCAL}:{admin}/stats?filter=ext_proc") as response:
        return {name: int(value) for name, value in PICKED_STAT.findall(await response.text())}


async def back(session: aiohttp.ClientSession, admin: int) -> float:
    """Seconds until the picker is heard again. Raises TimeoutError."""
    began = time.perf_counter()
    before = (await picked(session, admin)).get("stream_msgs_received", 0)
    async with asyncio.timeout(BACK_S):
        while (await picked(session, admin)).get("stream_msgs_received", 0) < before + 20:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return time.perf_counter() - began


async def stopped(controller: Controller) -> None:
    controller.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(SPAN_S)
    finally:
        controller.signal(signal.SIGCONT)


async def stalled(controller: Controller) -> None:
    for _ in range(int(SPAN_S / STALL_S)):
        controller.signal(signal.SIGSTOP)
        await asyncio.sleep(STALL_S)
        controller.signal(signal.SIGCONT)
        await asyncio.sleep(STALL_S / 2)


async def killed(controller: Controller) -> None:
    controller.kill()
    await asyncio.sleep(SPAN_S)
    controller.start()


async def well(_: Controller) -> None:
    await asyncio.sleep(SPAN_S)


FAULTS: Final[dict[str, Callable[[Controller], Any]]] = {
    "well": well,
    "stopped": stopped,
    "stalled": stalled,
    "killed": killed,
}


async def measure(rounds: int = ROUNDS) -> dict[str, float]:
    """The figures of all spans."""
    context = multiprocessing.get_context("spawn")
    xds_port, *ports = free_ports(5)
    listens, admins = dict(zip(GATEWAYS, ports[:2], strict=True)), dict(zip(GATEWAYS, ports[2:], strict=True))
    spans, figures = Spans(), dict[str, float]()
    async with AsyncExitStack() as stack:
        pipe, there = context.Pipe()
        engines = context.Process(target=run_engine, args=(there,))
        engines.start()
        stack.callback(engines.join, 10)
        stack.callback(pipe.send, None)
        cells = pipe.recv()
        controller = Controller(xds_port, listens, cells)
        stack.callback(controller.end)
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in GATEWAYS:
            await stack.enter_async_context(envoy(name, xds_port, admins[name], directory))
        timeout = aiohttp.ClientTimeout(total=30)
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        urls = {name: f"http://{LOCAL}:{port}/v1/completions" for name, port in listens.items()}
        for name in GATEWAYS:
            await ready(session, urls[name])
        await stack.enter_async_context(load(session, urls, spans))
        for _ in range(rounds):
            for span, fault in FAULTS.items():
                before = await picked(session, admins["on"])
                spans.current = span
                await fault(controller)
                spans.current = "after"
                after = await picked(session, admins["on"])
                _count(figures, span, before, after)
                figures["back_s"] = max(figures.get("back_s", 0.0), await back(session, admins["on"]))
                await asyncio.sleep(1.0)
    return figures | figures_of(spans)


def _count(figures: dict[str, float], span: str, before: dict[str, int], after: dict[str, int]) -> None:
    """Add what the filter has counted in a span."""
    for name, stat in (("heard", "stream_msgs_received"), ("passed_over", "failure_mode_allowed")):
        key = f"{name}.{span}"
        figures[key] = figures.get(key, 0.0) + after.get(stat, 0) - before.get(stat, 0)


def figures_of(spans: Spans) -> dict[str, float]:
    """Quantiles by span and gateway, and their differences, ms."""
    found: dict[str, float] = {}
    for span, count in spans.failed.items():
        found[f"failed.{span}"] = count
        for name in GATEWAYS:
            times = spans.times[span, name]
            cut = statistics.quantiles(times, n=100)
            found[f"requests.{span}.{name}"] = len(times)
            found[f"{name}_ms_p50.{span}"], found[f"{name}_ms_p99.{span}"] = cut[49], cut[98]
        for quantile in ("p50", "p99"):
            found[f"excess_ms_{quantile}.{span}"] = (
                found[f"on_ms_{quantile}.{span}"] - found[f"off_ms_{quantile}.{span}"]
            )
    return found


def main() -> None:
    """Run it."""
    path = json_path(__doc__ or "")
    report("picker_faults", SEED, asyncio.run(measure()), path)


if __name__ == "__main__":
    main()
