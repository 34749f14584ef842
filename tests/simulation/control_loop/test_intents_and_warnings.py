"""Operators' intents and early warnings in the whole loop."""

from __future__ import annotations

import random

import pytest

from headrace_controller.inventory.columns import HEALTH_AT
from headrace_controller.lifecycle import CellState
from headrace_controller.projection import Intents
from headrace_controller.settings import ControllerSettings
from headrace_shared import config
from tests.simulation.control_loop.test_control_loop import SETTINGS, Region

DRAINS = "pressure: {early_warning: {drain: true, drain_after_s: 5}}"


class HotRegion(Region):
    """One whose cells in `hot` are throttled for heat."""

    hot: frozenset[str] = frozenset()

    def beat(self, node: str, now: float) -> None:
        super().beat(node, now)
        for cell in self.hot & self.nodes[node].keys():
            row = self.loop.fleet.row(cell)
            self.loop.fleet.health[row, HEALTH_AT["clock_event_reasons"]] = 0x40


def region(extra: str = "") -> HotRegion:
    found = HotRegion(extra)
    found.connect("n1", "c1", "c2")
    found.connect("n2", "c3")
    found.run(5.0)
    return found


def weights(found: Region) -> dict[str, int]:
    return {cell: found.loop.weights_of(cell)["gw"] for cell in found.loop.fleet.cell_ids()}


def test_intents_are_obeyed_at_the_next_tick() -> None:
    found = region()
    found.loop.intents = Intents(overrides={"c1": 7}, cordoned_sites=frozenset({"n2"}))
    found.run(0.05)
    assert weights(found) == {"c1": 7, "c2": 100, "c3": 0}
    found.loop.intents = Intents()
    found.run(0.05)
    assert weights(found)["c3"] == 100


def test_a_pool_pinned_elsewhere_is_empty_and_still_known() -> None:
    found = region()
    found.loop.intents = Intents(pins={"m": frozenset({"n9"})})
    found.run(0.05)
    assert found.outside.plans[-1].pools["m"]["gw"].weights == []


def test_an_explanation_agrees_with_what_is_published() -> None:
    found = region()
    told = found.loop.explain("c1", "gw")
    assert told is not None
    assert [term.weight for term in told.weights] == [weights(found)["c1"]]


def test_an_early_warning_is_told_and_takes_weight() -> None:
    found = region()
    found.hot = frozenset({"c2"})
    found.run(8.0)
    assert [(each.cell_id, each.kind, each.began) for each in found.loop.alerts] == [
        ("c2", "thermal_clocks", True)
    ]
    assert weights(found)["c2"] < 60 < weights(found)["c1"]
    assert found.loop.book.life("c2").state is CellState.READY


def reload(found: Region, more: str) -> None:
    found.loop.use(config.parse(f"{SETTINGS}lifecycle: {{ramp_s: 0}}\n{more}", ControllerSettings))


def test_an_early_warning_stands_over_a_reload() -> None:
    found = region()
    found.hot = frozenset({"c2"})
    found.run(8.0)
    before = weights(found)
    reload(found, "pressure: {hold_s: 6}")
    found.run(0.5)
    assert weights(found) == before
    assert len(found.loop.alerts) == 1, "it has not begun anew"
    reload(found, "pressure: {hold_s: 6, early_warning: {weight: 0}}")
    found.run(5.0)
    assert weights(found)["c2"] > before["c2"], "other settings of it are in force"


def test_a_reload_gives_a_cell_that_fails_its_requests_no_weight_back() -> None:
    found = region()
    for cell in ("c1", "c2", "c3"):
        found.totals[cell] = {"ok": 0, "server_errors": 0}
    for kind, count in (("ok", 4000), ("server_errors", 40)):
        for _ in range(10):
            for cell in ("c1", "c2", "c3"):
                found.totals[cell][kind if cell == "c1" else "ok"] += count
            found.run(1.0)
    before = weights(found)
    assert before["c1"] == 1
    reload(found, "pressure: {hold_s: 6}")
    found.run(5.0)
    assert weights(found) == before


def test_a_reload_takes_no_moment_of_load_for_the_whole_truth() -> None:
    """What is in force is the mean of minutes; it goes on, whatever the queues are in that second."""
    found = region()
    luck = random.Random(3)
    for _ in range(200):
        found.queue = {cell: max(0.0, luck.gauss(8.0, 6.0)) for cell in ("c1", "c2", "c3")}
        found.run(0.5)
    assert found.loop.pressures is not None
    before = found.loop.pressures.base.copy()
    found.queue = {"c1": 0.0, "c2": 12.0, "c3": 8.0}
    reload(found, "pressure: {hold_s: 6}")
    found.run(0.2)
    assert found.loop.pressures.base == pytest.approx(before, abs=0.005)


def test_a_lasting_warning_drains_where_that_is_asked_but_never_the_last_cell() -> None:
    found = region(DRAINS)
    found.hot = frozenset({"c1", "c2", "c3"})
    found.run(30.0)
    states = [found.loop.book.life(cell).state for cell in ("c1", "c2", "c3")]
    assert states.count(CellState.READY) >= 1
    assert CellState.DRAINING in states or CellState.TERMINATED in states
    drained = [life for life in found.loop.book.lives() if life.drain is not None]
    assert {life.drain.requested_by for life in drained if life.drain} == {"early warning"}
