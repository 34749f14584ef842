"""A controller that restarts moves no traffic: weights, evidence, drains and distances are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_controller.control.keeper import Keeper
from headrace_controller.control.kept_fleet import KeptFleet, KeptFleetStore
from headrace_controller.lifecycle import Answer, CellState
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.simulation.control_loop.test_control_loop import TICK_S, Region


def kept_from(region: Region, tmp_path: Path) -> KeptFleet:
    """What a controller finds on disk that starts after the region's."""
    store = KeptFleetStore(tmp_path, "default")
    snapshot = Keeper(store, region.loop, "default").snapshot()
    assert snapshot is not None
    assert store.save(snapshot)
    kept = store.load()
    assert kept is not None
    return kept


def restarted(region: Region, tmp_path: Path, **settings: str) -> Region:
    """The next controller, whose agents are the same and have not returned yet."""
    again = Region(kept=kept_from(region, tmp_path), clock=region.clock, **settings)
    again.queue, again.totals = region.queue, region.totals
    return again


def three(**settings: str) -> Region:
    region = Region(**settings)
    for number in (1, 2, 3):
        region.connect(f"n{number}", f"c{number}")
    return region


@pytest.fixture
def failing() -> Region:
    """c3 rejects half of what it gets, and is down to the least weight for it."""
    region = three()
    region.totals = {cell: {"ok": 0, "client_errors": 0} for cell in ("c1", "c2", "c3")}
    for _ in range(40):
        serve(region, 0.5)
    assert region.weights == {"c1": 100, "c2": 100, "c3": 1}
    return region


def serve(region: Region, seconds: float) -> None:
    """Requests by the weights, evenly; c3 fails half of its own."""
    for cell, weight in (region.weights if region.outside.plans else {"c1": 1, "c2": 1, "c3": 1}).items():
        region.totals[cell]["ok"] += 1 + weight // 20
        region.totals[cell]["client_errors"] += (1 + weight // 20) * (cell == "c3")
    region.run(seconds)


@pytest.mark.parametrize("traffic", [False, True])
def test_a_cell_that_fails_keeps_its_trickle_over_a_restart(
    failing: Region, tmp_path: Path, traffic: bool
) -> None:
    """Without the evidence it would get a full share until it had failed enough anew."""
    again = restarted(failing, tmp_path)
    for number in (1, 2, 3):
        again.connect(f"n{number}", f"c{number}")
    again.run(0.1)
    assert again.weights == {"c1": 100, "c2": 100, "c3": 1}
    for _ in range(30):
        if traffic:
            serve(again, 1)
        else:
            again.run(1)
        assert again.weights["c3"] <= 2
    assert min(again.weights["c1"], again.weights["c2"]) == 100


def test_evidence_that_was_kept_clears_only_by_evidence(failing: Region, tmp_path: Path) -> None:
    again = restarted(failing, tmp_path)
    for number in (1, 2, 3):
        again.connect(f"n{number}", f"c{number}")
    for _ in range(200):
        for cell in again.totals:
            again.totals[cell]["ok"] += 5
        again.run(0.5)
        if again.weights["c3"] >= 90:
            break
    assert again.weights["c3"] >= 90


def test_weights_wait_for_figures_not_for_the_first_word(tmp_path: Path) -> None:
    """An agent that returns may say that its engine serves before it has read any figure."""
    region = three()
    region.queue.update(c1=4.0, c2=16.0, c3=28.0)
    region.run(14)
    before = region.weights
    assert before["c1"] > before["c2"] > before["c3"]
    again = restarted(region, tmp_path)
    for number in (1, 2, 3):
        again.connect(f"n{number}", f"c{number}")
    for _ in range(100):
        now = again.clock.advance(TICK_S)
        for number in (1, 2, 3):
            said = pb.CellBeat(cell_id=f"c{number}", engine_state=pb.ENGINE_STATE_SERVING, serving_ms=600_000)
            if number > 1:
                again.loop.telemetry(f"n{number}", pb.Telemetry(cells=[said]), now)
        again.beat("n1", now)
        again.loop.tick(now)
        assert not again.outside.plans or again.weights == before
    again.run(10)
    assert again.weights == before


@pytest.mark.parametrize("away_s", [1.0, 2.0, 2.9])
def test_agents_that_take_their_time_to_return_find_their_cells_as_they_were(
    tmp_path: Path, away_s: float
) -> None:
    """Restored cells count as silent at once; an engine that is slow to answer must not pay for it."""
    region = three()
    region.run(4)
    again = restarted(region, tmp_path)
    for number in (1, 2):
        again.connect(f"n{number}", f"c{number}")
    asked, end = 0, again.clock.now() + away_s
    while again.clock.now() < end:
        again.run(TICK_S)
        for cell in again.outside.asked[asked:]:
            again.loop.answered(cell, Answer.NO_ANSWER, "slow")
        asked = len(again.outside.asked)
        assert again.state("c3") is CellState.READY
    again.connect("n3", "c3")
    again.run(5)
    assert all(set(plan.pools["m"]["gw"]) for plan in again.outside.plans)
    assert {len(plan.pools["m"]["gw"]) for plan in again.outside.plans} == {3}


def test_a_restored_cell_whose_engine_refuses_is_out_at_once(tmp_path: Path) -> None:
    region = three()
    region.run(4)
    again = restarted(region, tmp_path)
    for number in (1, 2):
        again.connect(f"n{number}", f"c{number}")
    again.run(0.6)
    again.loop.answered("c3", Answer.DEAD, "refused")
    assert again.state("c3") is CellState.FAILED


def test_a_restored_cell_that_nobody_hears_of_is_given_up_after_the_barrier(tmp_path: Path) -> None:
    region = three()
    region.run(4)
    again = restarted(region, tmp_path)
    for number in (1, 2):
        again.connect(f"n{number}", f"c{number}")
    for _ in range(90):
        again.run(TICK_S)
        again.loop.answered("c3", Answer.NO_ANSWER, "")
    assert again.state("c3") is CellState.FAILED
    assert set(again.weights) == {"c1", "c2"}


def test_a_far_engine_is_given_the_time_its_distance_takes_over_a_restart_too(tmp_path: Path) -> None:
    region = three()
    region.rtt_ms["n3"] = 280.0
    region.run(4)
    again = restarted(region, tmp_path)
    again.run(0.6)
    timeouts = dict(zip(again.outside.asked, again.outside.timeouts, strict=True))
    assert timeouts["c3"] == pytest.approx(1.12, rel=0.1)
    assert timeouts["c1"] == pytest.approx(0.1)


def test_a_drain_under_way_goes_on_after_a_restart_to_its_deadline(tmp_path: Path) -> None:
    region = three()
    region.run(4)
    region.loop.drain("c2", "new fans", 30.0)
    region.run(10)
    again = restarted(region, tmp_path)
    for number in (1, 2, 3):
        again.connect(f"n{number}", f"c{number}")
    again.run(1)
    assert again.state("c2") is CellState.DRAINING
    assert set(again.weights) == {"c1", "c3"}
    again.run(20)
    assert again.state("c2") is CellState.TERMINATED
    again.loop.undrain("c2", "done")
    again.run(1)
    assert set(again.weights) == {"c1", "c2", "c3"}


@pytest.mark.parametrize("host_is_off", [False, True])
def test_a_finished_drain_stands_after_a_restart(tmp_path: Path, host_is_off: bool) -> None:
    region = three()
    region.run(4)
    region.loop.drain("c2", "new fans", 1.0)
    region.run(2)
    assert region.state("c2") is CellState.TERMINATED
    again = restarted(region, tmp_path)
    for number in (1, 3):
        again.connect(f"n{number}", f"c{number}")
    if host_is_off:
        again.run(1)
        assert set(again.weights) == {"c1", "c3"}, "a host that is off is not waited for"
        again = restarted(again, tmp_path)
        for number in (1, 3):
            again.connect(f"n{number}", f"c{number}")
    again.connect("n2", "c2")
    again.run(2)
    assert again.state("c2") is CellState.TERMINATED
    assert again.loop.book.life("c2").drain is not None
    assert "new fans" in again.loop.book.story("c2")


def test_a_drain_of_the_engines_own_is_not_kept(tmp_path: Path) -> None:
    """A sleeping engine that woke meanwhile must not stay out."""
    region = three()
    region.run(4)
    region.nodes["n2"]["c2"] = pb.ENGINE_STATE_SLEEPING
    region.run(2)
    again = restarted(region, tmp_path)
    for number in (1, 2, 3):
        again.connect(f"n{number}", f"c{number}")
    again.run(2)
    assert again.state("c2") is CellState.READY


def test_what_was_learned_of_speeds_rules_from_the_first_plan_on(tmp_path: Path) -> None:
    """Without it a slow cell would get a full share until it had been learned anew."""
    region = three()
    region.speed.update(c1=1000.0, c2=1000.0, c3=500.0)
    region.run(60)
    before = region.weights
    assert before["c1"] == before["c2"] == 100
    assert 45 <= before["c3"] <= 55
    again = restarted(region, tmp_path)
    again.speed = region.speed
    for number in (1, 2, 3):
        again.connect(f"n{number}", f"c{number}")
    for _ in range(60):
        again.run(1)
        assert again.weights == before
