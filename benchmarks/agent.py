"""What the agent costs beside a paying workload: its CPU time and its memory on a host of eight engines.

The agent runs as a process of its own, with its default settings, and reads eight vLLM pages of
100 KB and the page of a DCGM exporter with eight GPUs, which all differ from read to read; it
measures the paths to three gateways on the loopback (by ICMP where that is allowed, else by TCP)
and streams to a controller in this process; its own metrics are asked for as Prometheus does.
Its child processes count as the agent, and what else runs on the machine shows: `load_average` and
the spread over six slices say how much. Every page and every path must have come through, or there
is no result.

- `cpu_share`: user and system time over wall time, 0.03 = 3 % of one core;
- `rss_mib`: the most of its resident memory, read once a second;
- `parser_ratio`: the CPU time in which `prometheus_client` parses the pages that the agent reads in
  a second, over all the CPU time that the agent uses in a second;
- `page_us`, `library_page_us`: the CPU time for one engine page, from bytes to figures, here and to
  samples with `prometheus_client`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from itertools import count, islice, pairwise
from typing import Any, Final

import grpc
import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.agent_host import CELLS, GATEWAYS, Usage, agent, gateways, settings, sources
from benchmarks.busy_pages import EnginePage, GpuPage
from benchmarks.fake_source import GPUS
from benchmarks.result import json_path, report
from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.pages.metrics import MetricsSource
from headrace_agent.settings import EngineSettings, HardwareSettings
from headrace_lab.stack.ports import free_ports
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import CellTelemetryServicer, add_CellTelemetryServicer_to_server
from headrace_shared.signals import SIGNALS, Origin

SEED: Final = 1
READY_S: Final = 20.0
WARM_S: Final = 10.0
MEASURED_S: Final = 60
SLICES: Final = 6
PAGES: Final = 40
# Prometheus asks four times a minute when nobody tells it otherwise.
OWN_METRICS_EVERY: Final = 15
CELL_SIGNALS: Final = [each.name for each in SIGNALS if each.origin in (Origin.ENGINE, Origin.GPU)]


class Controller(CellTelemetryServicer):
    """Welcomes the agent, acknowledges its events, and keeps its last beat."""

    def __init__(self, gateways: list[pb.Gateway]) -> None:
        self._gateways = gateways
        self.beats = 0
        self.whole = 0
        self.telemetry = 0
        self.bytes = 0
        self.lacks = "no telemetry came"

    async def Stream(  # noqa: N802 - the service's name for it
        self, request_iterator: AsyncIterator[pb.AgentMessage], context: Any
    ) -> AsyncIterator[pb.ControllerMessage]:
        async for message in request_iterator:
            body = message.WhichOneof("body")
            self.bytes += message.ByteSize()
            if body == "hello":
                yield pb.ControllerMessage(welcome=pb.Welcome(session="bench", gateways=self._gateways))
            elif body == "event":
                yield pb.ControllerMessage(ack=pb.Ack(event_id=message.event.event_id))
            elif body in ("telemetry", "liveness"):
                self.beats += 1
                if body == "telemetry":
                    self._look_at(message.telemetry)

    def _look_at(self, beat: pb.Telemetry) -> None:
        self.telemetry += 1
        self.lacks = _lacks(beat)
        self.whole += not self.lacks


def _lacks(beat: pb.Telemetry) -> str:
    """What a beat of this host should hold and does not; "" for nothing."""
    if (len(beat.cells), len(beat.paths)) != (CELLS, GATEWAYS):
        return f"{len(beat.cells)} cells and {len(beat.paths)} paths"
    for cell in beat.cells:
        for name in CELL_SIGNALS:
            if not cell.signals.HasField(name):  # type: ignore[arg-type]
                return f"{cell.cell_id} has no {name}: {[source.detail for source in cell.sources]}"
        if cell.engine_state != pb.ENGINE_STATE_SERVING:
            return f"{cell.cell_id} is not serving"
    return next((f"{path.gateway} has no rtt_ms" for path in beat.paths if not path.HasField("rtt_ms")), "")


async def measure(process: psutil.Process, controller: Controller, metrics: int) -> dict[str, float]:
    """Let the agent settle, then watch it for a minute."""
    await _settle(controller)
    usage, seconds = Usage(process), count()
    controller.beats = controller.whole = controller.telemetry = controller.bytes = 0
    marks = [(time.monotonic(), usage.cpu_s())]
    for _ in range(SLICES):
        for second in islice(seconds, MEASURED_S // SLICES):
            await asyncio.sleep(1.0)
            usage.look()
            if second % OWN_METRICS_EVERY == 0:
                await asyncio.to_thread(_ask_for_metrics, metrics)
        marks.append((time.monotonic(), usage.cpu_s()))
    if controller.whole < 0.9 * controller.telemetry:
        raise SystemExit(f"beats lacked figures: {controller.lacks or 'in between'}")
    shares, wall_s = [_share(*pair) for pair in pairwise(marks)], marks[-1][0] - marks[0][0]
    return {
        "cpu_share": _share(marks[0], marks[-1]),
        "cpu_share_least_slice": min(shares),
        "cpu_share_most_slice": max(shares),
        "rss_mib": usage.rss_mib,
        "beats_a_second": controller.beats / wall_s,
        "telemetry_a_second": controller.telemetry / wall_s,
        "bytes_a_second": controller.bytes / wall_s,
    }


async def _settle(controller: Controller) -> None:
    began = time.monotonic()
    while controller.lacks:
        if time.monotonic() - began > READY_S:
            raise SystemExit(f"the agent's beats are not whole after {READY_S:g} s: {controller.lacks}")
        await asyncio.sleep(0.1)
    await asyncio.sleep(WARM_S)


def _share(first: tuple[float, float], last: tuple[float, float]) -> float:
    """CPU time over wall time between two marks of both, in seconds."""
    return (last[1] - first[1]) / (last[0] - first[0])


def _ask_for_metrics(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        page.read()


def cpu_us(work: Callable[[bytes], Any], pages: list[bytes]) -> float:
    """The median CPU time of `work` on one page, in microseconds."""
    times = []
    for page in pages:
        begun = time.process_time_ns()
        work(page)
        times.append(time.process_time_ns() - begun)
    return statistics.median(times) / 1000


def library(page: bytes) -> None:
    """What a reader without a parser of its own does with a page."""
    for _ in text_string_to_metric_families(page.decode()):
        pass


def parsers() -> dict[str, float]:
    """Reading one page, here and with the library."""
    drawn, gpu_drawn = EnginePage(SEED), GpuPage(SEED, GPUS)
    pages = [drawn.render() for _ in range(PAGES)]
    gpu_pages = [gpu_drawn.render() for _ in range(PAGES)]
    source, seconds = MetricsSource(EngineSettings()), iter(range(PAGES))
    return {
        "page_bytes": float(len(pages[-1])),
        "page_us": cpu_us(lambda page: source.take(Answer(200, page), next(seconds) / 2), pages),
        "library_page_us": cpu_us(library, pages),
        "library_gpu_page_us": cpu_us(library, gpu_pages),
    }


def parser_ratio(figures: dict[str, float]) -> float:
    """The library's CPU time for a second's pages, over the agent's for a whole second."""
    engine_pages = CELLS / EngineSettings().scrape_interval_s
    gpu_pages = 1 / HardwareSettings().dcgm_interval_s
    spent_us = engine_pages * figures["library_page_us"] + gpu_pages * figures["library_gpu_page_us"]
    return spent_us / 1e6 / figures["cpu_share"]


async def run() -> dict[str, float]:
    """The whole measurement."""
    async with gateways() as found:
        controller = Controller(found)
        server = grpc.aio.server()
        add_CellTelemetryServicer_to_server(controller, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        (metrics,) = free_ports(1)
        try:
            with sources(SEED) as ports:
                async with agent(settings(*ports, port, metrics)) as process:
                    return await measure(process, controller, metrics)
        finally:
            await server.stop(None)


def main() -> None:
    """Measure and report."""
    path = json_path((__doc__ or "").split("\n\n")[0])
    figures = parsers() | asyncio.run(run())
    figures["parser_ratio"] = parser_ratio(figures)
    report("agent", SEED, figures, path, {"load_average": os.getloadavg()})


if __name__ == "__main__":
    main()
