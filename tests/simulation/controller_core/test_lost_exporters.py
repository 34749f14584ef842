"""An exporter that dies says nothing about its cell: no weight moves for that reason alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure import PressureModel
from headrace_controller.projection import Projector
from headrace_controller.settings import PressureSettings, ProjectionSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import GPU_SIGNALS
from tests.unit.controller.inventory.builders import beat, facts, hello, telemetry

TICK = 0.25
LOAD = st.floats(0, 1)
LOADS = st.fixed_dictionaries(
    {"queue_depth": st.floats(0, 32), "kv_fill": LOAD, "ttft_p95_s": st.floats(0, 5)}
    | dict.fromkeys(GPU_SIGNALS, LOAD)
)


class Equals:
    """Cells that all carry the same load, at two sites, in a controller with a deadband of none."""

    def __init__(self, cells: int, load: dict[str, float]) -> None:
        projection = ProjectionSettings(deadband=0.0, push_interval_s=0.05)
        self.cells = [f"c{number}" for number in range(cells)]
        self.fleet = Fleet(["g"])
        self.model = PressureModel(PressureSettings(), 1, jump=projection.emergency)
        self.projector = Projector(projection, ["g"], 0.0)
        self.now = 100.0
        self.lost: set[str] = set()
        blind = {name: value for name, value in load.items() if name not in GPU_SIGNALS}
        self.sound = {cell: telemetry(beat(cell, signals=load)) for cell in self.cells}
        self.blind = {cell: telemetry(beat(cell, signals=blind)) for cell in self.cells}
        for said in self.blind.values():
            said.cells[0].hardware_source = pb.HARDWARE_SOURCE_NONE
        for number, cell in enumerate(self.cells):
            named = hello(facts(cell, port=8000 + number))
            self.fleet.register(f"n-{cell}", "even" if number % 2 == 0 else "odd", named, self.now)
        self.fleet.state[:cells] = CellState.READY
        self.fleet.ready_since[:cells] = 0.0

    def run(self, seconds: float) -> list[list[int]]:
        """The weights of every tick, by cell."""
        seen = []
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            for cell in self.cells:
                told = self.blind if cell in self.lost else self.sound
                self.fleet.apply(f"n-{cell}", told[cell], self.now)
            found = self.projector.tick(self.fleet, self.model.tick(self.fleet, self.now), self.now)
            seen.append(found.weights[0].tolist())
        return seen


@settings(max_examples=20, deadline=None)
@given(cells=st.integers(2, 9), load=LOADS, which=st.integers(0, 8))
def test_one_exporter_of_a_fleet_of_equals_moves_no_weight(
    cells: int, load: dict[str, float], which: int
) -> None:
    fleet = Equals(cells, load)
    before = fleet.run(2.0)[-1]
    fleet.lost = {fleet.cells[which % cells]}
    assert all(weights == before for weights in fleet.run(7.0))
    fleet.lost = set()
    assert all(weights == before for weights in fleet.run(2.0))


@pytest.mark.parametrize("lost", ["a site", "all", "one after the other"])
def test_no_exporters_that_die_together_move_a_weight_either(lost: str) -> None:
    load = {"queue_depth": 2.0, "kv_fill": 0.4, "ttft_p95_s": 0.5} | dict.fromkeys(GPU_SIGNALS, 0.9)
    fleet = Equals(6, load)
    before = fleet.run(2.0)[-1]
    if lost == "one after the other":
        for cell in fleet.cells:
            fleet.lost |= {cell}
            assert all(weights == before for weights in fleet.run(3.0))
    fleet.lost = set(fleet.cells[::2]) if lost == "a site" else set(fleet.cells)
    assert all(weights == before for weights in fleet.run(10.0))
