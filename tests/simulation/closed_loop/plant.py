"""A fleet whose load follows the weights: the controller's core in a closed loop, in virtual time.

Each cell is a queue with a number of servers, as a fluid (no luck at all) or with Poisson arrivals and
exponential service. Its figures answer its load with the delays that real ones have: beats every
half second, a TTFT that is the P95 of a sliding window.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import Book, Publish
from headrace_controller.pressure import PressureModel, Pressures
from headrace_controller.projection import NO_INTENTS, Intents, Projected, Projector
from headrace_controller.settings import LifecycleSettings, PressureSettings, ProjectionSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.inventory.builders import beat, facts, hello, telemetry

STEP_S = 0.1
BEAT_S = 0.5
TTFT_WINDOW_S = 15.0


@dataclass
class Cell:
    """`servers` requests run at once and each takes `service_s`; `refused` of them fail at once."""

    servers: float = 16.0
    service_s: float = 2.0
    prefill_s: float = 0.2
    refused: float = 0.0
    rtt_ms: float = 5.0
    inside: float = 0.0
    ok: float = 0.0
    bad: float = 0.0
    ttft: deque[float] = field(default_factory=lambda: deque(maxlen=round(TTFT_WINDOW_S / STEP_S)))

    @property
    def running(self) -> float:
        return min(self.inside, self.servers)

    @property
    def waiting(self) -> float:
        return self.inside - self.running

    def advance(self, arrived: float, luck: np.random.Generator | None) -> None:
        """One step in which `arrived` requests arrive."""
        refused = arrived * self.refused
        ends = self.running * STEP_S / self.service_s
        if luck is not None:
            refused = float(luck.binomial(int(arrived), self.refused))
            ends = float(luck.binomial(int(self.running), -np.expm1(-STEP_S / self.service_s)))
        done = min(self.inside, ends)
        self.inside += arrived - refused - done
        self.ok += done
        self.bad += refused
        self.ttft.append(
            self.prefill_s * (1 + self.running / self.servers) + self.waiting * self.service_s / self.servers
        )

    def figures(self) -> dict[str, float]:
        busy = self.running / self.servers
        return {
            "queue_depth": self.waiting,
            "ttft_p95_s": float(np.percentile(self.ttft, 95)) if self.ttft else 0.0,
            "kv_fill": 0.05 + 0.9 * busy,
            "gpu_util": min(1.0, self.running),
            "vram_util": 0.9,
            "compute_active": 0.8 * busy,
            "memory_bw_util": 0.7 * busy,
        }


class Loop:
    """`cells` under `rps` requests a second that follow the weights; the fleet has run for `settle_s`."""

    def __init__(
        self,
        cells: dict[str, Cell],
        rps: float,
        seed: int | None = None,
        settle_s: float = 60.0,
        pressure: dict[str, Any] | None = None,
        **projection: Any,
    ) -> None:
        self.cells, self.rps, self.now = cells, rps, 1000.0
        self.luck = None if seed is None else np.random.default_rng(seed)
        lifecycle, settings = LifecycleSettings(), ProjectionSettings(**projection)
        self.fleet = Fleet(["g"])
        self.book = Book(self.fleet, lifecycle)
        self.model = PressureModel(PressureSettings(**(pressure or {})), 1, jump=settings.emergency)
        self.projector = Projector(settings, ["g"], lifecycle.ramp_s)
        self.weights: dict[str, int] = {}
        self.pushes: list[tuple[float, str, dict[str, int]]] = []
        self.beats: list[pb.Telemetry] = []
        self.intents: Intents = NO_INTENTS
        for number, cell in enumerate(cells):
            changes = self.fleet.register(f"n-{cell}", "s", hello(facts(cell, port=8000 + number)), self.now)
            self.book.registered(changes, self.now)
        self.run(settle_s)

    def run(self, seconds: float) -> list[tuple[float, str, dict[str, int]]]:
        """Run on; returns the pushes of this time: (when, why, weights)."""
        before = len(self.pushes)
        for step in range(round(seconds / STEP_S)):
            self.now += STEP_S
            self._load()
            if step % round(BEAT_S / STEP_S) == 0:
                self._report()
            else:
                for cell in self.cells:
                    self.fleet.touch(f"n-{cell}", self.now)
            self.tick()
        return self.pushes[before:]

    def tick(self) -> None:
        force = any(isinstance(each, Publish) for each in self.book.tick(self.now).instructions)
        self.pressures: Pressures = self.model.tick(self.fleet, self.now)
        self.projected: Projected = self.projector.tick(
            self.fleet, self.pressures, self.now, force, self.intents
        )
        if self.projected.plan is not None:
            endpoints = self.projected.plan.pools["m"]["g"]
            self.weights = {each.cell_id: each.weight for each in endpoints}
            self.pushes.append((self.now, self.projected.reason, self.weights))

    def share(self, cell: str) -> float:
        """The share of the load that a cell gets."""
        return self.weights.get(cell, 0) / sum(self.weights.values())

    def pressure(self, cell: str) -> float:
        return float(self.pressures.pressure[0, self.fleet.row(cell)])

    def _load(self) -> None:
        total = sum(self.weights.values())
        for cell, queue in self.cells.items():
            arrived = self.rps * STEP_S * self.weights.get(cell, 0) / total if total else 0.0
            queue.advance(arrived if self.luck is None else float(self.luck.poisson(arrived)), self.luck)

    def _report(self) -> None:
        for cell, queue in self.cells.items():
            said = beat(
                cell,
                signals=queue.figures(),
                totals={"ok": int(queue.ok), "client_errors": int(queue.bad)},
                in_flight=int(queue.inside),
            )
            path = pb.PathBeat(gateway="g", rtt_ms=queue.rtt_ms, jitter_ms=1.0)
            message = telemetry(said)
            message.paths.append(path)
            self.fleet.apply(f"n-{cell}", message, self.now)
