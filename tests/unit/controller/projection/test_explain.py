"""An explanation accounts for the weight: its arithmetic, done again here, gives the same numbers."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure import PressureModel
from headrace_controller.projection import CellExplanation, Intents, Projected, Projector, explain
from headrace_controller.projection.explain import SmoothingTerm, WeightTerm
from headrace_controller.settings import PressureSettings, ProjectionSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.inventory.builders import beat, facts, hello, telemetry

GATEWAYS = ("g", "h")
CELLS = 7
LOST, LOST_AT = (1, 3, 4), 1010.0
SIGNALS = (
    "queue_depth",
    "ttft_p95_s",
    "kv_fill",
    "gpu_util",
    "vram_util",
    "compute_active",
    "memory_bw_util",
)


class Wild:
    """A fleet of two pools whose every figure is drawn: loads, gaps, failures, faults, states, intents."""

    def __init__(self, seed: int, projection: str) -> None:
        self.luck = np.random.default_rng(seed)
        self.settings = ProjectionSettings(name=projection, gain=2.0)
        self.fleet = Fleet(GATEWAYS)
        self.now = 1000.0
        self.model = PressureModel(
            PressureSettings(hold_s=2.0, decay_s=5.0), 2, jump=0.3, ttft_slos={"x": 2.0}
        )
        self.projector = Projector(self.settings, GATEWAYS, ramp_s=10.0)
        self.cells = [f"c{number}" for number in range(CELLS)]
        self.totals = {cell: [0, 0] for cell in self.cells}
        self.work: dict[str, int] = {}
        for number, cell in enumerate(self.cells):
            models = [("m",), ("m", "x"), ("x",)][number % 3]
            self.fleet.register(
                f"n-{cell}", f"s{number % 2}", hello(facts(cell, models, 8000 + number)), self.now
            )
            self.fleet.state[number] = CellState.READY
            self.fleet.ready_since[number] = self.now - self.luck.uniform(0, 15)

    def tick(self) -> Projected:
        self.now += self.luck.choice([0.05, 0.25, 1.1])
        for number, cell in enumerate(self.cells):
            if self.luck.random() < 0.6:
                self._tell(number, cell)
        if self.luck.random() < 0.2:
            row = self.luck.integers(CELLS)
            self.fleet.state[row] = self.luck.choice([CellState.READY, CellState.READY, CellState.FAILED])
            self.fleet.telemetry_lost[row] = self.luck.random() < 0.3
        self.pressures = self.model.tick(self.fleet, self.now)
        self.projected = self.projector.tick(self.fleet, self.pressures, self.now, intents=self.intents)
        return self.projected

    intents = Intents()

    def _tell(self, number: int, cell: str) -> None:
        signals: dict[str, Any] = {
            name: self.luck.random() * (32 if name == "queue_depth" else 1)
            for name in SIGNALS
            if self.luck.random() < 0.8
        }
        failed = int(self.luck.integers(0, 8)) if number == 0 else 0
        self.totals[cell][0] += 8 - failed
        self.totals[cell][1] += failed
        ok, bad = self.totals[cell]
        said = beat(cell, signals=signals, totals={"ok": ok, "client_errors": bad}, in_flight=0)
        if number % 2:  # of the others nothing tells what they can do
            self.work[cell] = self.work.get(cell, 0) + int(self.luck.integers(0, 4000))
            said.compute_measure = pb.COMPUTE_MEASURE_TENSOR
            said.work.prompt_tokens, said.work.generated_tokens = self.work[cell], 0
        said.hardware.clock_event_reasons = 0x40 if number == 1 else 0
        paths = [pb.PathBeat(gateway=g, rtt_ms=self.luck.uniform(0, 100), jitter_ms=1.0) for g in GATEWAYS]
        if number in LOST and self.now > LOST_AT:
            paths[0] = pb.PathBeat(gateway=GATEWAYS[0], loss=1.0, age_ms=0)
        self.fleet.apply(f"n-{cell}", telemetry(said, paths=paths), self.now)

    def explain(self, cell: str, gateway: str) -> CellExplanation:
        found = explain(self.fleet, self.pressures, self.projected, self.settings, cell, gateway)
        assert found is not None
        return found


def close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-12)


def account_for_the_pressure(found: CellExplanation) -> None:
    for signal in found.signals:
        if signal.normalised is not None and signal.raw is not None and signal.name != "error_rate":
            scaled = (min(max(signal.raw, signal.low), signal.high) - signal.low) / (signal.high - signal.low)
            assert close(signal.normalised, scaled)
        scored = signal.normalised if signal.filled is None else signal.filled
        assert close(signal.contribution, signal.weight * (scored or 0.0))
    part = found.smoothing
    if part.mean is not None:
        assert close(part.mean, sum(signal.contribution for signal in found.signals))
    assert close(part.smoothed, _smoothed(part))
    if part.settled is not None:
        assert close(part.settled, _settled(part))
        median = part.median if part.median is not None else 0.0
        drifted = part.settled + part.decayed * (median - part.settled)
        assert close(part.base, drifted)
    else:
        assert close(part.base, 0.5 if part.median is None else part.median)
    error = found.error
    if error.excess:
        assert error.estimate is not None
        assert error.others is not None
        assert error.chance is not None
        assert close(error.excess, max(0.0, error.estimate - error.others - error.chance))
    excess = min(max(error.excess or 0.0, error.low), error.high)
    assert close(
        error.normalised, 0.0 if error.excess is None else (excess - error.low) / (error.high - error.low)
    )
    worst = max((min(term.chart, 1.0) for term in found.early if term.alert), default=0.0)
    assert close(found.early_added, 0.25 * worst)
    pressure = min(1.0, 1.0 - (1.0 - part.base) * (1.0 - error.normalised) + found.early_added)
    assert close(found.pressure, pressure)


def _smoothed(part: SmoothingTerm) -> float | None:
    if part.jumped:
        return part.mean
    if part.before is None:
        return part.smoothed
    return part.before if part.aim is None else part.before + part.step * (part.aim - part.before)


def _settled(part: SmoothingTerm) -> float | None:
    if part.taken or part.shifted:
        return part.smoothed if part.taken else part.slow
    if part.settled_before is None or part.mean is None:
        return part.settled_before
    return part.settled_before + part.gain * (part.mean - part.settled_before)


def account_for_the_weight(found: CellExplanation, term: WeightTerm) -> None:
    if term.weight is None:
        assert term.decision in ("FAILED", "pinned away", "cordoned")
        return
    assert term.max_weight is not None
    assert term.target is not None
    assert term.room is not None
    assert term.best is not None
    assert term.ramp is not None
    assert term.sharpness is not None
    if term.speed is not None:
        assert term.health is not None
        assert close(term.health, max((1.0 - found.error.normalised) * (1.0 - found.early_added), 1e-6))
        assert term.relief == _relief(term, found)
        power = (term.relief * term.health) ** term.sharpness
        assert term.reach is not None
        room = term.speed * power * max(term.ramp, 1e-3) * term.reach
    elif term.log_weight is None:
        assert term.headroom == max(1.0 - found.pressure, 1e-6)
        room = term.headroom**term.sharpness * (max(term.ramp, 1e-3) if term.ramp < 1 else 1.0)
        assert term.reach is not None
        room *= term.reach
    else:
        assert term.health is not None
        assert close(term.health, (1.0 - found.error.normalised) * (1.0 - found.early_added))
        room = math.exp(term.log_weight) * max(term.ramp, 1e-3) * max(term.health, 1e-6) ** term.sharpness
    assert close(term.room, room)
    assert term.target == max(1, round(term.max_weight * term.room / term.best))
    assert term.weight == _decided(term)


def _relief(term: WeightTerm, found: CellExplanation) -> float:
    assert term.measured is not None
    assert term.usual is not None
    assert term.spread is not None
    assert term.measured == found.smoothing.base
    left = max(1.0 - term.measured, 1e-6)
    if term.blind:
        return left / max(1.0 - term.usual, 1e-6)
    return min(left / max(1.0 - min(term.usual + term.spread, 1.0), 1e-6), 1.0)


def _decided(term: WeightTerm) -> int | None:
    match term.decision:
        case "override":
            return term.override
        case "joined":
            return term.weight if term.would_be is not None else term.target
        case "moved" | "unchanged":
            return term.target
        case "limited":
            assert term.target is not None
            assert term.least is not None
            assert term.most is not None
            return min(max(term.target, term.least), term.most)
    assert term.decision in ("deadband", "held", "waiting", "shadow", "frozen")
    return term.before


@pytest.mark.parametrize("projection", ["speed", "headroom", "equalise"])
@pytest.mark.parametrize("seed", range(3))
def test_the_weight_of_a_wild_fleet_is_accounted_for(seed: int, projection: str) -> None:
    wild, decisions, reaches = Wild(seed, projection), set(), set()
    for number in range(100):
        if number == 50:
            wild.intents = Intents(
                overrides={"c6": 17}, cordoned_sites=frozenset({"s1"}), pins={"x": frozenset({"s1"})}
            )
        if number == 80:
            wild.intents = Intents(shadow=True)
        wild.tick()
        for cell in wild.cells:
            for gateway in GATEWAYS:
                found = wild.explain(cell, gateway)
                account_for_the_pressure(found)
                for term in found.weights:
                    account_for_the_weight(found, term)
                    decisions.add(term.decision)
                    reaches.add(term.reach)
    assert decisions >= {"moved", "limited", "deadband", "joined", "waiting", "held", "override", "shadow"}
    assert decisions >= {"FAILED", "pinned away", "cordoned"}
    assert projection == "equalise" or reaches - {None, 1.0}


def test_an_explanation_is_plain_data() -> None:
    wild = Wild(0, "headroom")
    wild.tick()
    text = json.dumps(dataclasses.asdict(wild.explain("c0", "h")), allow_nan=False)
    assert json.loads(text)["cell_id"] == "c0"


def test_a_cell_that_was_not_scored_yet_has_none() -> None:
    wild = Wild(0, "headroom")
    wild.tick()
    wild.fleet.remove("c6")
    wild.fleet.register("n-new", "s0", hello(facts("new")), wild.now)
    assert explain(wild.fleet, wild.pressures, wild.projected, wild.settings, "new", "g") is None
    with pytest.raises(KeyError):
        wild.explain("c6", "g")
    with pytest.raises(ValueError, match=r"tuple\.index"):
        wild.explain("c0", "unknown")
