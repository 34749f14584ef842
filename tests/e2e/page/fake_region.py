"""A controller's inside with many simulated cells whose figures move, and its pages on a port of loopback.

The control loop, the feed and the page are the real ones; agents, engines and Envoys are not there.
`python -m tests.e2e.page.fake_region --cells 100` serves it for a look in a browser.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import threading
from collections.abc import Callable, Sequence

from aiohttp import web

from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import log
from headrace_shared.clock import SystemClock
from tests.unit.controller.control.region import Region

SITES = ("amsterdam", "berlin", "paris", "warsaw")
GATEWAYS = ("gw-1", "gw-2")
PER_NODE = 10
TICK_S = 0.25
BEAT_EVERY = 2
"""Ticks between two beats of a cell."""


class FakeRegion:
    """`cells` cells over four sites; call `step` every TICK_S."""

    def __init__(self, cells: int, more: str = "", seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.region = Region(more, SystemClock())  # type: ignore[arg-type]
        self.loop = self.region.loop
        self.dead: set[str] = set()
        self.silent: set[str] = set()
        self.steps = 0
        self.nodes: dict[str, list[str]] = {}
        self.base: dict[str, float] = {}
        for number in range(cells):
            site = SITES[number % len(SITES)]
            node = f"{site}-host-{number // len(SITES) // PER_NODE + 1}"
            cell = f"{site}-{number // len(SITES) + 1:03d}"
            self.nodes.setdefault(node, []).append(cell)
            self.base[cell] = self.random.uniform(0.1, 0.7)
        for node, own in self.nodes.items():
            self._hello(node, own)
        self.step()

    def _hello(self, node: str, cells: Sequence[str]) -> None:
        models = ("llama-3.3-70b", "qwen3-32b")
        facts = [
            pb.CellFacts(
                cell_id=cell,
                address=pb.Address(host="127.0.0.1", port=8000 + number),
                engine_kind="vllm",
                engine_version="0.32.0",
                models=[pb.ModelFacts(id=models[number % 3 == 2], max_model_len=131072)],
                gpus=[pb.GpuFacts(uuid=f"GPU-{abs(hash((node, number))):016x}")],
            )
            for number, cell in enumerate(cells)
        ]
        site = node.split("-host")[0]
        self.loop.hello(pb.Hello(node=node, site=site, incarnation=1, cells=facts), self.region.clock.now())

    def step(self) -> None:
        """Every agent says something, and the control loop ticks once."""
        now = self.region.clock.now()
        for number, (node, cells) in enumerate(self.nodes.items()):
            if node in self.silent:
                continue
            self.loop.alive(node, now)
            if (self.steps + number) % BEAT_EVERY == 0:
                self.loop.telemetry(node, self._beat(node, cells, now), now)
        self.steps += 1
        self.loop.tick(self.region.clock.now())

    def _beat(self, node: str, cells: Sequence[str], now: float) -> pb.Telemetry:
        site = SITES.index(node.split("-host")[0])
        paths = [
            pb.PathBeat(
                gateway=gateway,
                rtt_ms=4 + 9 * site * (1 + number) + self.random.gauss(0, 0.3),
                jitter_ms=abs(self.random.gauss(0.4 + 0.5 * site, 0.1)),
                age_ms=0,
            )
            for number, gateway in enumerate(GATEWAYS)
        ]
        return pb.Telemetry(cells=[self._cell(cell, now) for cell in cells], paths=paths)

    def _cell(self, cell: str, now: float) -> pb.CellBeat:
        if cell in self.dead:
            return pb.CellBeat(cell_id=cell, engine_state=pb.ENGINE_STATE_DOWN)
        load = self.base[cell] + 0.12 * math.sin(now / 17 + self.base[cell] * 40)
        load = min(0.98, max(0.02, load + self.random.gauss(0, 0.02)))
        signals = pb.Signals(
            queue_depth=round(20 * max(0.0, load - 0.4)),
            ttft_p95_s=0.15 + load**3 * 2,
            error_rate=0.001,
            kv_fill=load,
            gpu_util=min(1.0, load * 1.3),
            vram_util=0.91,
            compute_active=load * 0.9,
            memory_bw_util=load * 0.6,
        )
        nvml = self.base[cell] > 0.68
        return pb.CellBeat(
            cell_id=cell,
            engine_state=pb.ENGINE_STATE_SERVING,
            serving_ms=600_000,
            in_flight=round(load * 40),
            signals=signals,
            hardware_source=pb.HARDWARE_SOURCE_NVML if nvml else pb.HARDWARE_SOURCE_DCGM,
        )

    def kill(self, cell: str) -> None:
        """The cell's agent says that its engine is gone."""
        self.dead.add(cell)
        node = next(node for node, own in self.nodes.items() if cell in own)
        now = self.region.clock.now()
        event = pb.CellEvent(cell_id=cell, kind=pb.CELL_EVENT_KIND_ENGINE_DOWN, cause="connection refused")
        self.loop.event(node, event, now)


class Served:
    """The pages of a fake region in a thread with an event loop of its own."""

    def __init__(self, make: Callable[[], FakeRegion], port: int = 0, tick_s: float = TICK_S) -> None:
        self._make = make
        self._port = port
        self._tick_s = tick_s
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="fake region")
        self.url = ""
        self.fake: FakeRegion

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._ready.wait(60), "the fake region does not come up"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def call(self, do: Callable[[FakeRegion], None]) -> None:
        """Do something to the region, in its own thread."""
        self._loop.call_soon_threadsafe(do, self.fake)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self.fake = self._make()
        runner = web.AppRunner(self.fake.region.desk.app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port).start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        self._ready.set()
        while not self._stop.is_set():
            self.fake.step()
            await asyncio.sleep(self._tick_s)
        await runner.cleanup()
        self.fake.region.close()


def obey(served: Served, line: str) -> None:
    """A line of the standard input: `kill CELL`. Says when it was done, ms since the Unix epoch."""
    word, _, cell = line.strip().partition(" ")
    if word != "kill":
        raise SystemExit(f"unknown: {line!r}; say kill CELL")

    def kill(fake: FakeRegion) -> None:
        print(f"killed {fake.region.clock.wall_ns() / 1e6}", flush=True)
        fake.kill(cell)

    served.call(kill)


def main() -> None:
    """Serve until so many seconds have gone by, and do meanwhile what the standard input says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--tick-s", type=float, default=TICK_S)
    arguments = parser.parse_args()
    log.configure("error", "json")
    with Served(lambda: FakeRegion(arguments.cells), arguments.port, arguments.tick_s) as served:
        print(served.url, flush=True)
        threading.Thread(target=_listen, args=(served,), name="commands", daemon=True).start()
        threading.Event().wait(arguments.seconds)


def _listen(served: Served) -> None:
    for line in sys.stdin:
        obey(served, line)


if __name__ == "__main__":
    main()
