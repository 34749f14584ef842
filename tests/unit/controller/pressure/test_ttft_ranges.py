"""The TTFT at which a pool counts as full."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure import PressureModel, ScoreRecord
from headrace_controller.pressure.errors import ErrorRecord
from headrace_controller.pressure.unloaded import LEAST_S, MOST_S
from headrace_controller.settings import PressureSettings
from headrace_shared.signals import INDEX
from tests.unit.controller.inventory.builders import ENOUGH, beat, facts, hello, telemetry

TTFT = INDEX["ttft_p95_s"]


class Pools:
    """READY cells that serve the models of `cells`, and their TTFTs."""

    def __init__(
        self, cells: dict[str, tuple[str, ...]], slos: dict[str, float] | None = None, **settings: Any
    ) -> None:
        self.fleet, self.now = Fleet(["g"]), 0.0
        self.model = PressureModel(PressureSettings(**settings), 1, ttft_slos=slos or {})
        for number, (cell, models) in enumerate(cells.items()):
            self.fleet.register(f"n-{cell}", "s", hello(facts(cell, models, 8000 + number)), 0.0)
            self.fleet.state[number] = CellState.READY

    def scored(self, seconds: float = 6.0, **ttft: float) -> dict[str, float]:
        """The normalised TTFT of each cell after so long."""
        for _ in range(2):
            self.now += seconds / 2
            for cell in self.fleet.cell_ids():
                signals = {**ENOUGH} | ({"ttft_p95_s": ttft[cell]} if cell in ttft else {})
                self.fleet.apply(f"n-{cell}", telemetry(beat(cell, signals=signals)), self.now)
            found = self.model.tick(self.fleet, self.now)
        return {
            cell: float(found.normalised_cell[self.fleet.row(cell), TTFT]) for cell in self.fleet.cell_ids()
        }


def test_a_pool_is_full_at_its_slo() -> None:
    pools = Pools({"a": ("m",), "b": ("x",)}, slos={"m": 2.0}, learn_ttft=False)
    assert pools.scored(a=1.0, b=1.0) == pytest.approx({"a": 0.5, "b": 0.2})


def test_a_cell_of_several_pools_is_held_to_the_strictest() -> None:
    pools = Pools({"a": ("m", "x"), "b": ("x",)}, slos={"m": 1.0, "x": 4.0})
    assert pools.scored(a=0.5, b=0.5) == pytest.approx({"a": 0.5, "b": 0.125})


def test_an_slo_that_the_range_cannot_hold_is_left_out() -> None:
    pools = Pools({"a": ("m",)}, {"m": 0.5}, signals={"ttft_p95_s": {"low": 1.0, "high": 5.0}})
    assert pools.scored(a=3.0) == pytest.approx({"a": 0.5})


def test_it_is_learned_from_what_the_pool_needs_without_load() -> None:
    pools = Pools({"a": ("m",), "b": ("m",), "c": ("m",)}, ttft_factor=5.0)
    pools.scored(a=0.4, b=0.4, c=0.4)
    assert pools.scored(a=1.0, b=2.0, c=0.4) == pytest.approx({"a": 0.5, "b": 1.0, "c": 0.2}, abs=0.01)


def test_one_odd_cell_does_not_set_the_range_of_its_pool() -> None:
    pools = Pools({"a": ("m",), "b": ("m",), "c": ("m",)}, ttft_factor=5.0)
    assert pools.scored(a=0.4, b=0.4, c=0.001)["a"] == pytest.approx(0.2)


@pytest.mark.parametrize(("unloaded", "high"), [(0.001, LEAST_S), (1000.0, MOST_S)])
def test_what_is_learned_is_bounded(unloaded: float, high: float) -> None:
    pools = Pools({"a": ("m",)})
    assert pools.scored(a=unloaded)["a"] == pytest.approx(min(1.0, unloaded / high))


def test_a_range_that_the_settings_give_is_not_learned() -> None:
    pools = Pools({"a": ("m",)}, signals={"ttft_p95_s": {"high": 10.0}})
    assert pools.scored(a=1.0) == pytest.approx({"a": 0.1})


def test_without_any_ttft_the_catalogue_rules() -> None:
    pools = Pools({"a": ("m",), "b": ("m",)})
    assert np.isnan(pools.scored()["a"])
    assert pools.scored(a=0.4)["a"] == pytest.approx(0.4 / 2.0)


def test_what_was_learned_outlives_a_controller() -> None:
    old = Pools({"a": ("m",)})
    old.scored(a=0.4)
    record = old.model.record(old.fleet, 0)
    assert record.unloaded_ttft_s == pytest.approx(0.4)
    young = Pools({"a": ("m",)})
    young.model.restore(young.fleet, 0, ScoreRecord((0.1,), ErrorRecord(), record.unloaded_ttft_s), 0.0)
    assert young.scored(a=1.0)["a"] == pytest.approx(0.5, abs=0.01)


def test_a_step_back_of_the_clock_and_a_lost_page_change_nothing() -> None:
    pools = Pools({"a": ("m",)})
    pools.scored(a=0.4)
    pools.now = 1.0
    assert pools.scored(a=0.8)["a"] == pytest.approx(0.4, abs=0.01)
