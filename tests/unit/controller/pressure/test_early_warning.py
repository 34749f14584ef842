"""Early warning: each kind of evidence is seen in time, noise is not, and what it costs is bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure import Alert, EarlyWarning, PressureModel, choose_drains
from headrace_controller.pressure.evidence import KINDS
from headrace_controller.settings import EarlyWarningSettings, PressureSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.inventory.builders import ENOUGH, beat, facts, hello, telemetry

WELL = {"thermal_margin_c": 15.0, "power_w": 600.0, "power_limit_w": 700.0, "clock_event_reasons": 0}
WELL |= {"pcie_replays": 1000, "ecc_correctable": 7}
CELLS = ("a", "b", "c")


class Watched:
    """READY cells of one pool whose health is told each second; `health[cell]` may be a function of the
    seconds since the beginning."""

    def __init__(
        self, cells: tuple[str, ...] = CELLS, models: tuple[str, ...] = ("m",), **settings: Any
    ) -> None:
        self.settings = EarlyWarningSettings(**settings)
        self.fleet = Fleet(["g"])
        self.early = EarlyWarning(self.settings, stale_after_s=5.0)
        self.begun = self.now = 1000.0
        self.health: dict[str, Callable[[float], dict[str, Any]]] = {}
        self.in_flight = dict.fromkeys(cells, 4)
        self.compute = dict.fromkeys(cells, 0.5)
        self.silent: set[str] = set()
        self.alerts: list[Alert] = []
        for number, cell in enumerate(cells):
            self.fleet.register(f"n-{cell}", "s", hello(facts(cell, models, 8000 + number)), self.now)
            self.fleet.state[number] = CellState.READY

    def run(self, seconds: float) -> list[Alert]:
        """Run on; returns the alerts that began or ended."""
        before = len(self.alerts)
        for _ in range(round(seconds)):
            self.now += 1.0
            for cell in self.in_flight:
                self._tell(cell)
            self.alerts += self.early.tick(self.fleet, self.now)[1]
        return self.alerts[before:]

    def added(self, cell: str) -> float:
        found = self.early.tick(self.fleet, self.now)[0]
        return 0.0 if found is None else float(found.added[self.fleet.row(cell)])

    def _tell(self, cell: str) -> None:
        health = WELL | self.health.get(cell, lambda _: {})(self.now - self.begun)
        said = beat(
            cell, signals={**ENOUGH, "compute_active": self.compute[cell]}, in_flight=self.in_flight[cell]
        )
        if cell not in self.silent:
            said.hardware.CopyFrom(pb.HardwareHealth(**health))
        self.fleet.apply(f"n-{cell}", telemetry(said), self.now)


def falling(seconds: float) -> dict[str, Any]:
    """Half a degree a second, from 15."""
    return {"thermal_margin_c": max(0.5, 15.0 - 0.5 * seconds)}


def warming_up(seconds: float) -> dict[str, Any]:
    """An idle GPU gets its load: 25 degrees within a minute, and then it stands."""
    return {"thermal_margin_c": 15.0 + 25.0 * np.exp(-seconds / 15.0)}


def reasons(bits: int) -> Callable[[float], dict[str, Any]]:
    return lambda _: {"clock_event_reasons": bits}


def counting(counter: str, a_minute: float) -> Callable[[float], dict[str, Any]]:
    return lambda seconds: {counter: int(1000 + a_minute * seconds / 60)}


@pytest.mark.parametrize(
    ("kind", "health", "within_s"),
    [
        ("thermal", falling, 27),
        ("thermal_clocks", reasons(0x20), 3),
        ("thermal_clocks", reasons(0x40), 3),
        ("thermal_clocks", reasons(0x8), 3),
        ("power", reasons(0x80), 6),
        ("power", reasons(0x4), 30),
        ("power", lambda seconds: {"power_limit_w": 700.0 if seconds < 2 else 500.0}, 8),
        ("pcie_replays", counting("pcie_replays", 120), 5),
        ("pcie_replays", counting("pcie_replays", 20), 40),
        ("ecc", counting("ecc_correctable", 60), 10),
    ],
)
def test_each_kind_of_evidence_is_seen_in_time_and_only_in_its_own_cell(
    kind: str, health: Callable[[float], dict[str, Any]], within_s: float
) -> None:
    watched = Watched()
    watched.health["b"] = health
    found = watched.run(60)
    begun = [alert for alert in found if alert.began]
    assert {(alert.cell_id, alert.kind) for alert in begun} == {("b", kind)}
    assert begun[0].at - watched.begun <= within_s
    assert begun[0].said


def test_a_falling_margin_is_seen_before_it_is_gone() -> None:
    watched = Watched()
    watched.health["b"] = falling
    alert = watched.run(60)[0]
    gone_at = watched.begun + 30.0
    assert gone_at - alert.at >= 3.0


def test_a_gpu_that_computes_without_a_request_is_seen() -> None:
    watched = Watched()
    watched.in_flight["b"], watched.compute["b"] = 0, 0.9
    assert [(each.cell_id, each.kind) for each in watched.run(20)] == [("b", "idle_compute")]
    watched = Watched()
    watched.in_flight["b"], watched.compute["b"] = 0, 0.05
    assert watched.run(60) == []
    watched.fleet.state[1] = CellState.LOADING
    watched.compute["b"] = 0.9
    assert watched.run(60) == []


@pytest.mark.parametrize(
    "health",
    [
        warming_up,
        lambda _: {"thermal_margin_c": 4.0},
        reasons(0x1 | 0x2 | 0x10 | 0x100),
        counting("pcie_replays", 5),
        counting("ecc_correctable", 1),
        lambda seconds: {"pcie_replays": 0 if seconds > 10 else 10**6},
        lambda seconds: {"clock_event_reasons": 0x20 if seconds % 10 < 1 else 0},
        lambda seconds: {"clock_event_reasons": 2**63},
    ],
)
def test_what_is_normal_raises_no_alert(health: Callable[[float], dict[str, Any]]) -> None:
    watched = Watched()
    watched.health["b"] = health
    assert watched.run(180) == []
    assert watched.added("b") == 0.0


def test_a_whole_pool_at_its_power_cap_is_no_warning() -> None:
    watched = Watched()
    watched.health = dict.fromkeys(CELLS, reasons(0x4))
    assert watched.run(60) == []


def test_an_alert_costs_at_most_its_weight_and_ends_after_its_cause() -> None:
    watched = Watched(weight=0.25)
    watched.health["b"] = reasons(0x40)
    watched.run(30)
    assert watched.added("b") == 0.25
    assert watched.added("a") == 0.0
    watched.health.clear()
    assert [alert.began for alert in watched.run(30)] == [False]
    assert watched.added("b") == 0.0


def test_figures_that_are_gone_take_an_alert_back_only_slowly() -> None:
    watched = Watched(forget_s=30.0)
    watched.health["b"] = reasons(0x40)
    watched.run(30)
    watched.silent.add("b")
    assert watched.run(10) == []
    assert watched.added("b") == 0.25
    assert [alert.began for alert in watched.run(120)] == [False]


def test_a_fleet_without_health_figures_is_left_alone() -> None:
    watched = Watched()
    watched.silent = set(CELLS)
    assert watched.run(60) == []


def test_it_can_be_switched_off() -> None:
    watched = Watched(enabled=False)
    watched.health["b"] = reasons(0x40)
    assert watched.run(30) == []
    assert choose_drains(watched.fleet, watched.early, watched.settings, watched.now) == []


def test_a_reused_row_inherits_no_warning() -> None:
    watched = Watched()
    watched.health["b"] = reasons(0x40)
    watched.run(30)
    watched.fleet.remove("b")
    watched.fleet.register("n-d", "s", hello(facts("d")), watched.now)
    assert watched.added("d") == 0.0


def test_a_warning_raises_the_pressure_before_the_engine_says_anything() -> None:
    watched = Watched()
    model = PressureModel(PressureSettings(), 1)
    before = model.tick(watched.fleet, watched.now)
    watched.health["b"] = reasons(0x40)
    for _ in range(5):
        watched.run(1)
        after = model.tick(watched.fleet, watched.now)
    assert before.alerts == ()
    assert after.pressure[0, 1] - after.pressure[0, 0] == pytest.approx(0.25)
    assert after.raw[0, 1] - after.raw[0, 0] == pytest.approx(0.25)


def drains(watched: Watched) -> list[str]:
    return choose_drains(watched.fleet, watched.early, watched.settings, watched.now)


def test_a_lasting_alert_drains_one_cell_of_a_pool_at_a_time_and_never_more_than_half() -> None:
    watched = Watched(("a", "b", "c", "d"), drain=True, drain_after_s=20.0)
    watched.health = dict.fromkeys("abcd", reasons(0x40))
    watched.run(15)
    assert drains(watched) == []
    watched.run(15)
    assert drains(watched) == ["a"]
    watched.fleet.state[0] = CellState.DRAINING
    assert drains(watched) == []
    watched.fleet.state[0] = CellState.TERMINATED
    assert drains(watched) == ["b"]
    watched.fleet.state[3] = CellState.FAILED
    assert drains(watched) == [], "half of the pool is out already"
    watched.fleet.state[3], watched.fleet.state[1] = CellState.READY, CellState.TERMINATED
    assert drains(watched) == [], "a heat wave takes out no more than half"


def test_the_only_cell_of_a_pool_is_not_drained() -> None:
    watched = Watched(("a",), drain=True, drain_after_s=20.0)
    watched.health = {"a": reasons(0x40)}
    watched.run(40)
    assert drains(watched) == []


def test_a_drain_must_be_asked_for_and_spares_cells_that_nobody_speaks_for() -> None:
    watched = Watched(drain_after_s=5.0)
    watched.health["b"] = reasons(0x40)
    watched.run(30)
    assert drains(watched) == []
    watched.settings = EarlyWarningSettings(drain=True, drain_after_s=5.0)
    assert drains(watched) == ["b"]
    watched.fleet.telemetry_lost[1] = True
    assert drains(watched) == []


def test_noise_of_a_day_of_cells_raises_hardly_an_alert() -> None:
    """Two hundred cells for ten minutes, more than a day of one, with the noise that health has: margins
    that wander by degrees, a replay now and then, corrected errors, a cap that comes and goes."""
    cells = tuple(f"c{number}" for number in range(200))
    watched, luck = Watched(cells), np.random.default_rng(7)
    margin, replays, errors = np.zeros(200), np.zeros(200), np.zeros(200)
    for _ in range(600):
        margin += 0.1 * (0.0 - margin) + luck.normal(0, 0.6, 200)
        replays += luck.poisson(1.0 / 60, 200)
        errors += luck.poisson(0.05 / 60, 200)
        told = watched.fleet.health
        told[:200, 0] = 12.0 + margin + luck.normal(0, 0.5, 200)
        told[:200, 1:4] = np.column_stack(
            (luck.normal(600, 20, 200), np.full(200, 700.0), 4.0 * (luck.random(200) < 0.3))
        )
        told[:200, 4], told[:200, 5] = replays, errors
        watched.now += 1.0
        watched.fleet.telemetry_at[:200] = watched.now
        watched.alerts += watched.early.tick(watched.fleet, watched.now)[1]
    assert sum(alert.began for alert in watched.alerts) <= 1


def test_the_kinds_are_as_many_as_the_charts() -> None:
    watched = Watched()
    watched.health["b"] = reasons(0x40)
    watched.run(5)
    found = watched.early.tick(watched.fleet, watched.now)[0]
    assert found is not None
    assert found.charts.shape == found.alerts.shape == (3, len(KINDS))
