"""No push moves a weight of a class further than `max_change`, and pushes follow until it is there."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.capability import Guide
from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure import PressureModel
from headrace_controller.projection import Intents, Plan, Projected, Projector
from headrace_controller.projection.class_steps import ClassSteps
from headrace_controller.settings import PressureSettings, ProjectionSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.inventory.builders import ENOUGH, beat, telemetry

GATEWAYS = ("g", "h")
EVEN = Guide(mix={"m": {1024: 0.5, 32768: 0.5}})
INTERVAL_S = 1.0


class Pool:
    """Idle READY cells of one model, whose lengths the test chooses."""

    def __init__(self, ramp_s: float = 0.0, **projection: Any) -> None:
        self.settings = ProjectionSettings(push_interval_s=INTERVAL_S, **projection)
        self.ramp_s = ramp_s
        self.fleet = Fleet(GATEWAYS)
        self.model = PressureModel(PressureSettings(smoothing_s=0.0), len(GATEWAYS), jump=0.3)
        self.projector = self.make()
        self.now = 1000.0
        self.plan = Plan()
        for cell, length in {"a": 1024, "b": 1024, "c": 32768, "d": 32768}.items():
            self.add(cell, length)

    def make(self) -> Projector:
        return Projector(self.settings, GATEWAYS, self.ramp_s)

    def add(self, cell: str, length: int, since: float = 0.0) -> None:
        facts = pb.CellFacts(
            cell_id=cell,
            address=pb.Address(host="10.0.0.1", port=8000 + ord(cell)),
            models=[pb.ModelFacts(id="m", max_model_len=length)],
        )
        self.fleet.register(f"n-{cell}", "s", pb.Hello(incarnation=1, cells=[facts]), self.now)
        row = self.fleet.row(cell)
        self.fleet.state[row] = CellState.READY
        self.fleet.ready_since[row] = since

    def tick(self, seconds: float = INTERVAL_S, force: bool = False, **more: Any) -> Projected:
        self.now += seconds
        for cell in self.fleet.cell_ids():
            self.fleet.apply(f"n-{cell}", telemetry(beat(cell, signals=dict(ENOUGH))), self.now)
        pressures = self.model.tick(self.fleet, self.now)
        found = self.projector.tick(self.fleet, pressures, self.now, force, **more)
        self.plan = found.plan or self.plan
        return found

    def short(self, gateway: str = "g") -> dict[str, int]:
        """The weights of the class of short requests."""
        return {each.cell_id: each.weight for each in self.plan.classes["m"][0][gateway]}


def told_half(pool: Pool) -> int:
    """Tell the mix, and give the weight that all cells had."""
    pool.tick()
    (weight,) = set(pool.short().values())
    assert weight > 8
    pool.projector.divide(EVEN)
    return weight


def test_a_mix_that_becomes_known_moves_large_cells_out_of_the_short_class_step_by_step() -> None:
    pool = Pool()
    before = told_half(pool)
    pushed, seen = [pool.tick(0.1, force=True).reason], [pool.short()]
    while pushed[-1]:
        pushed.append(pool.tick().reason)
        seen.append(pool.short())
        assert len(pushed) < 12
    assert pushed[:-1] == ["lifecycle"] + ["classes"] * (len(pushed) - 2)
    assert seen[-1] == {"a": before, "b": before, "c": 1, "d": 1} == pool.short("h")
    large = [before, *(each["c"] for each in seen[:-1])]
    for old, new in pairwise(large):
        assert new >= min(old / 2, old - 1)
    assert len(large) > 5


def test_the_next_step_waits_for_the_push_interval() -> None:
    pool = Pool()
    told_half(pool)
    pool.tick(0.1, force=True)
    assert [pool.tick(0.3).reason for _ in range(4)] == ["", "", "", "classes"]


def test_a_cell_that_joins_or_ramps_is_not_limited_in_its_classes() -> None:
    pool = Pool(ramp_s=10.0)
    before = told_half(pool)
    pool.add("e", 32768, since=pool.now)
    pool.tick(0.1, force=True)
    assert pool.short()["e"] == 1
    assert pool.short()["c"] >= before // 2
    # Its weight in the pool follows the ramp, and the other cells still make their steps.
    pool.projector.divide(Guide(mix={"m": {1024: 1.0, 32768: 0.0}}))
    pool.tick(5.0, force=True)
    assert pool.short()["e"] > 4
    assert pool.short()["c"] <= before


def test_weights_set_by_operators_hold_in_classes_at_once() -> None:
    pool = Pool()
    before = told_half(pool)
    pool.tick(0.1, intents=Intents(overrides={"c": 1}))
    assert pool.short()["c"] == 1
    assert pool.short()["d"] >= before // 2


def test_a_frozen_fleet_moves_nothing_in_classes_and_goes_on_afterwards() -> None:
    pool = Pool()
    before = told_half(pool)
    frozen = Intents(frozen=True)
    pool.tick(0.1, force=True, intents=frozen)
    assert [pool.tick(intents=frozen).reason for _ in range(3)] == ["", "", ""]
    assert set(pool.short().values()) == {before}
    pool.tick()
    assert pool.short()["c"] == -(-before // 2)


def test_another_projector_goes_on_from_what_was_told() -> None:
    pool = Pool()
    before = told_half(pool)
    old, pool.projector = pool.projector, pool.make()
    pool.projector.divide(EVEN)
    pool.projector.go_on_from(old)
    pool.tick(force=True)
    assert pool.short()["c"] == -(-before // 2)


@given(st.dictionaries(st.integers(0, 9), st.integers(1, 100)), st.data())
def test_whoever_stays_moves_within_the_factor_and_gets_there(
    told: dict[int, int], data: st.DataObject
) -> None:
    steps = ClassSteps(ProjectionSettings(max_change=1.5))
    wanted = data.draw(st.dictionaries(st.integers(0, 9), st.integers(1, 100), min_size=1))

    def push(of: dict[int, int]) -> dict[int, int]:
        keys = np.array(list(of), dtype=np.int64)
        steps.begin(keys, None, still=False)
        got = steps.of("m", slice(0, len(of)))(
            1024, np.arange(len(of)), np.array([list(of.values())], dtype=np.int64)
        )
        steps.end()
        return dict(zip(of, got[0].tolist(), strict=True))

    assert push(told) == told
    before, pushes = told, 0
    while True:
        now = push(wanted)
        for key, weight in now.items():
            old = before.get(key)
            if old is None:
                assert weight == wanted[key]
            else:
                assert min(old / 1.5, old - 1) <= weight <= max(old * 1.5, old + 1)
        assert steps.settled == (now == wanted)
        if steps.settled:
            break
        before, pushes = now, pushes + 1
        assert pushes < 20


def test_a_restarted_controller_moves_kept_class_weights_no_further_than_others() -> None:
    """What was told of a class before counts as pushed, and what was not told to all gateways does not."""
    pool = Pool()
    before = told_half(pool)
    told = {cell: dict.fromkeys(GATEWAYS, before) for cell in "abc"} | {"d": {"g": before}}
    young = pool.projector = pool.make()
    everything = {cell: {"m": dict.fromkeys(GATEWAYS, before)} for cell in "abcd"}
    young.divide(EVEN)
    young.seed(pool.fleet, everything, pool.now)
    young.seed_class(pool.fleet, "m", 1024, told)
    young.seed_class(pool.fleet, "unknown", 1024, told)
    pool.tick(0.1, force=True)
    assert pool.short()["c"] >= before // 2
    assert pool.short()["d"] == 1
