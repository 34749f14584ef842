"""The quiet tick of a large fleet: time-out scan plus scoring, no cell changing its state."""

from __future__ import annotations

import random
import statistics
import time
from typing import Final

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import Book
from headrace_controller.pressure import PressureModel
from headrace_controller.projection import Projector
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config

CELLS: Final = 10_000
CELLS_A_NODE: Final = 8
TICKS: Final = 200
TICK_S: Final = 0.05


def tick_ms(seed: int = 1) -> float:
    """The median time of one tick at 10,000 READY cells whose figures are fresh, ms."""
    rng = random.Random(seed)
    settings = config.parse("gateways: [{id: gw, host: 127.0.0.1}]", ControllerSettings)
    now = 1000.0
    fleet = Fleet(["gw"])
    book = Book(fleet, settings.lifecycle)
    model = PressureModel(settings.pressure, 1, jump=settings.projection.emergency)
    projector = Projector(settings.projection, ["gw"], settings.lifecycle.ramp_s)
    nodes = {
        f"n{first}": [f"c{number}" for number in range(first, first + CELLS_A_NODE)]
        for first in range(0, CELLS, CELLS_A_NODE)
    }
    for node, cells in nodes.items():
        facts = [
            pb.CellFacts(
                cell_id=cell,
                address=pb.Address(host=f"10.{int(cell[1:]) >> 8}.{int(cell[1:]) & 255}.1", port=8000),
                models=[pb.ModelFacts(id="m")],
            )
            for cell in cells
        ]
        hello = pb.Hello(node=node, site="s", incarnation=1, cells=facts)
        book.registered(fleet.register(node, "s", hello, now), now)
        fleet.apply(node, _beat(cells, rng), now)
        fleet.touch(node, now)
    times = []
    for number in range(TICKS):
        now += TICK_S
        for node in list(nodes)[number % 10 :: 10]:
            fleet.apply(node, _beat(nodes[node], rng), now)
        for node in nodes:
            fleet.touch(node, now)
        begun = time.perf_counter_ns()
        outcome = book.tick(now, 0.0)
        projector.tick(fleet, model.tick(fleet, now), now)
        times.append(time.perf_counter_ns() - begun)
        changed = [each for each in outcome.transitions if each.transition.before is not None]
        if number and changed:
            raise SystemExit(f"a cell changed its state, which is not what is measured: {changed[0]}")
    return statistics.median(times[TICKS // 10 :]) / 1e6


def _beat(cells: list[str], rng: random.Random) -> pb.Telemetry:
    return pb.Telemetry(
        cells=[
            pb.CellBeat(
                cell_id=cell,
                engine_state=pb.ENGINE_STATE_SERVING,
                serving_ms=600_000,
                signals=pb.Signals(
                    queue_depth=rng.uniform(0, 8), kv_fill=rng.random(), ttft_p95_s=rng.uniform(0.2, 0.6),
                    gpu_util=0.9, vram_util=0.8, compute_active=rng.random(), memory_bw_util=0.4,
                ),
            )
            for cell in cells
        ]
    )  # fmt: skip
