"""The search for a sustainable rate, over made-up fleets."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_lab.scenarios import packaged
from headrace_lab.scenarios.settings import Counting
from headrace_lab.sim.sustain import (
    LEAST_RPS,
    PRECISION,
    Outcome,
    Search,
    counted_seconds,
    mean_prompt_s,
    unloaded_rps,
)

COUNTING = Counting(bisections=40)


class Queue:
    """P95 grows without bound towards a capacity, as a queue's does."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.runs = 0

    def p95(self, rps: float) -> float:
        return math.inf if rps >= self.capacity else 0.5 / (1 - rps / self.capacity)

    def run(self, rps: float, slo_s: float) -> Outcome:
        self.runs += 1
        if self.p95(rps) > slo_s:
            return Outcome(rps, slo_s, 1.0, 500, exact=False)
        return Outcome(rps, self.p95(rps), 1.0, 500)


@given(st.floats(0.5, 500), st.floats(0.05, 20), st.floats(0.6, 20))
def test_the_found_rate_keeps_the_slo_and_little_more_does_not(
    capacity: float, guess_factor: float, slo_s: float
) -> None:
    queue = Queue(capacity)
    truth = capacity * (1 - 0.5 / slo_s)
    found = Search(queue.run, COUNTING).find(slo_s, capacity * guess_factor)
    if truth < LEAST_RPS:
        return
    assert found.rps <= truth <= found.failed_rps
    assert found.failed_rps / found.rps <= 1 + PRECISION + 1e-9


def test_tiers_share_their_runs() -> None:
    queue = Queue(20.0)
    search = Search(queue.run, COUNTING)
    loose = search.find(4.0, 10.0)
    before = queue.runs
    again = search.find(4.0, 10.0)
    assert queue.runs == before
    assert again.rps == loose.rps
    tight = search.find(1.0, loose.rps)
    assert tight.rps < loose.rps
    assert tight.rps == pytest.approx(10.0, rel=2 * PRECISION)


@given(st.floats(0.5, 500), st.floats(0.9, 1.1))
def test_a_guess_that_is_near_takes_fewer_runs_and_finds_the_same(capacity: float, off: float) -> None:
    truth = capacity * (1 - 0.5 / 2.0)
    near, far = Queue(capacity), Queue(capacity)
    found = Search(near.run, COUNTING).find(2.0, truth * off, near=True)
    again = Search(far.run, COUNTING).find(2.0, truth * 3)
    if truth < LEAST_RPS:
        return
    assert found.rps <= truth <= found.failed_rps
    assert found.failed_rps / found.rps <= 1 + PRECISION + 1e-9
    assert found.rps == pytest.approx(again.rps, rel=2 * PRECISION)
    assert near.runs <= 7 < far.runs


def test_a_near_guess_is_tried_first_although_other_tiers_left_a_wide_bracket() -> None:
    queue = Queue(20.0)
    search = Search(queue.run, COUNTING)
    search.find(20.0, 10.0)
    before = queue.runs
    found = search.find(0.75, 6.7, near=True)
    assert found.rps == pytest.approx(20 / 3, rel=2 * PRECISION)
    assert queue.runs - before <= 5


def test_a_fleet_that_keeps_no_rate_has_none() -> None:
    found = Search(Queue(20.0).run, COUNTING).find(0.4, 10.0)
    assert math.isnan(found.rps)


def test_success_counts_as_well() -> None:
    def run(rps: float, slo_s: float) -> Outcome:
        return Outcome(rps, 0.1, 0.99 if rps < 5 else 0.9, 500)

    assert Search(run, COUNTING).find(1.0, 20.0).rps == pytest.approx(5.0, rel=2 * PRECISION)


def test_the_budget_of_runs_is_kept() -> None:
    queue = Queue(20.0)
    Search(queue.run, Counting(bisections=4)).find(2.0, 0.5)
    assert queue.runs == 4


def test_windows_hold_enough_samples() -> None:
    counting = Counting()
    assert counted_seconds(counting, 20.0) == 45.0
    assert counted_seconds(counting, 0.5) == 1000.0


def test_a_long_load_is_unloaded_at_a_lower_rate() -> None:
    catalogue = packaged()
    fleet = catalogue.fleet("homogeneous")
    short = unloaded_rps(fleet, catalogue.load("baseline_mixed"), catalogue.counting)
    long = unloaded_rps(fleet, catalogue.load("very_long"), catalogue.counting)
    assert long < short <= 9 * catalogue.counting.unloaded_rps
    assert 9 * long / 9 * mean_prompt_s(fleet, catalogue.load("very_long"), slowest=True) < 0.051 * 9
