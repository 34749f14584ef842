"""The whole core under a virtual clock: beats in, weights out, traffic that follows the weights."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import Book, CellState, Publish
from headrace_controller.pressure import PressureModel
from headrace_controller.projection import Plan, Projector
from headrace_controller.settings import LifecycleSettings, PressureSettings, ProjectionSettings
from tests.unit.controller.inventory.builders import beat, facts, hello, telemetry

TICK = 0.1
BEAT = 0.5


class Region:
    """Cells that answer a Poisson-free, even stream of requests by the pushed weights; each fails
    its own share of them. Agents report totals and steady signals every half second."""

    def __init__(self, *cells: str, rps: float = 20.0, seed: int = 1) -> None:
        lifecycle, projection = LifecycleSettings(), ProjectionSettings()
        self.now = 100.0
        self.rps = rps
        self.random = Random(seed)
        self.fails = dict.fromkeys(cells, 0.0)
        self.totals = {cell: {"ok": 0, "client_errors": 0} for cell in cells}
        self.fleet = Fleet(["g"])
        self.book = Book(self.fleet, lifecycle)
        self.model = PressureModel(PressureSettings(), 1, jump=projection.emergency)
        self.projector = Projector(projection, ["g"], lifecycle.ramp_s)
        self.plan = Plan()
        self.pushes = 0
        self.served: Counter[str] = Counter()
        self.owed = 0.0
        for number, cell in enumerate(cells):
            changes = self.fleet.register(f"n-{cell}", "s", hello(facts(cell, port=8000 + number)), self.now)
            self.book.registered(changes, self.now)

    def run(self, seconds: float) -> None:
        for step in range(round(seconds / TICK)):
            self.now += TICK
            self._serve()
            for cell in self.fails:
                if step % round(BEAT / TICK) == 0:
                    said = beat(cell, totals=self.totals[cell], in_flight=1)
                    self.fleet.apply(f"n-{cell}", telemetry(said), self.now)
                else:
                    self.fleet.touch(f"n-{cell}", self.now)
            told = self.book.tick(self.now).instructions
            force = any(isinstance(each, Publish) for each in told)
            pressures = self.model.tick(self.fleet, self.now)
            plan = self.projector.tick(self.fleet, pressures, self.now, force).plan
            if plan is not None:
                self.plan, self.pushes = plan, self.pushes + 1

    def weights(self) -> dict[str, int]:
        endpoints = self.plan.pools.get("m", {}).get("g", ())
        return {endpoint.cell_id: endpoint.weight for endpoint in endpoints}

    def shares(self, seconds: float) -> dict[str, float]:
        self.served.clear()
        self.run(seconds)
        total = sum(self.served.values())
        return {cell: self.served[cell] / total for cell in self.fails}

    def _serve(self) -> None:
        self.owed += self.rps * TICK
        weights = self.weights()
        while self.owed >= 1.0 and weights:
            self.owed -= 1.0
            cell = self.random.choices(list(weights), list(weights.values()))[0]
            self.served[cell] += 1
            failed = self.random.random() < self.fails[cell]
            self.totals[cell]["client_errors" if failed else "ok"] += 1


def test_a_cell_that_rejects_half_its_requests_falls_to_weight_1_and_recovers_on_evidence() -> None:
    region = Region("a", "b", "c")
    region.run(30.0)
    assert region.weights() == {"a": 100, "b": 100, "c": 100}

    region.fails["c"] = 0.5
    region.run(30.0)
    assert region.weights() == {"a": 100, "b": 100, "c": 1}
    assert region.shares(40.0)["c"] < 0.03
    assert region.book.life("c").state is CellState.READY

    # No request, no evidence: time alone must not bring it back.
    region.rps, region.owed = 0.0, 0.0
    region.run(120.0)
    assert region.weights()["c"] == 1

    # Healed, with traffic again: the trickle of weight 1 finds out.
    region.fails["c"], region.rps = 0.0, 40.0
    for _ in range(120):
        region.run(10.0)
        if region.weights()["c"] >= 90:
            break
    assert region.weights()["c"] >= 90
    assert region.weights()["a"] == region.weights()["b"] == 100


def test_a_client_that_sends_bad_requests_everywhere_moves_nobody() -> None:
    region = Region("a", "b", "c", rps=60.0)
    region.run(30.0)
    pushes = region.pushes
    region.fails = dict.fromkeys("abc", 0.6)
    region.run(120.0)
    assert min(region.weights().values()) >= 40
    assert region.pushes - pushes < 60
    shares = region.shares(30.0)
    assert max(shares.values()) < 0.5


@pytest.mark.parametrize("seed", range(2))
def test_a_sound_fleet_settles_and_stays(seed: int) -> None:
    region = Region("a", "b", "c", seed=seed)
    region.run(30.0)
    pushes = region.pushes
    region.run(100.0)
    assert region.pushes == pushes
    assert max(region.shares(30.0).values()) < 0.4


def test_in_a_pool_of_two_the_better_one_is_the_measure() -> None:
    region = Region("a", "b")
    region.fails["b"] = 0.5
    region.run(30.0)
    assert region.weights() == {"a": 100, "b": 1}


def test_a_lone_cell_that_fails_keeps_its_traffic() -> None:
    region = Region("a")
    region.fails["a"] = 0.9
    region.run(30.0)
    assert region.weights() == {"a": 100}


def test_a_cell_that_refuses_a_third_whatever_their_length_ends_with_a_trickle() -> None:
    """It does not fit its pool for another reason than length: its dtype, version or driver."""
    region = Region("a", "b", "c", "d")
    region.run(30.0)
    region.fails["d"] = 0.3
    region.run(60.0)
    weights = region.weights()
    assert weights["d"] <= 5
    assert [weights[cell] for cell in "abc"] == [100, 100, 100]
    # An even spread would fail 7.5 % of all requests.
    assert 0.3 * region.shares(60.0)["d"] < 0.01
