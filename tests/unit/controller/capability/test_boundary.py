"""The learned boundary between small and larger cells."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.capability import (
    BUCKETS,
    EDGES,
    Boundary,
    BoundaryRecord,
    Learner,
    bucket_of,
    judge,
    no_counts,
)
from headrace_controller.capability.boundary import STEP, STEP_SAMPLES, room
from headrace_controller.capability.guide import Guide
from headrace_controller.capability.learner import GUIDE_INTERVAL_S
from headrace_controller.capability.sizes import Counts
from headrace_controller.settings import CapabilitySettings

SETTINGS = CapabilitySettings()
LENGTH = 1024
TOKENS = room(LENGTH, SETTINGS)
START = Boundary(1.5)
AT = START.bytes_below(TOKENS)


def told(*kinds: tuple[float, int, int]) -> Counts:
    """Counts from (size, accepted, refused)."""
    counts = no_counts()
    for size, accepted, refused in kinds:
        counts[bucket_of(size)] += (accepted, refused)
    return counts


def test_buckets_hold_what_their_edges_say() -> None:
    for size in (0, 1, 63, 64, 65, 100, 4096, 10**6, 10**12):
        bucket = bucket_of(size)
        assert EDGES[bucket] <= size + 1e-6
        assert bucket == BUCKETS - 1 or size < EDGES[bucket + 1]


@given(st.integers(0, 2**40))
def test_larger_bodies_are_in_later_buckets(size: int) -> None:
    assert bucket_of(size) <= bucket_of(size + 1) < BUCKETS


def test_requests_just_below_that_are_accepted_raise_it_by_one_step() -> None:
    near = told((AT * 0.9, STEP_SAMPLES, 0))
    after = judge(START, LENGTH, near, no_counts(), SETTINGS, 0.0)
    assert after.bytes_per_token == pytest.approx(1.5 * STEP)
    too_few = told((AT * 0.9, STEP_SAMPLES - 1, 0), (AT * 0.2, 1000, 0))
    assert judge(START, LENGTH, too_few, no_counts(), SETTINGS, 0.0) is START


def test_refusals_lower_it_to_where_there_were_none() -> None:
    counts = told((AT * 0.9, 5, 4), (AT * 0.75, 30, 0))
    after = judge(START, LENGTH, counts, no_counts(), SETTINGS, 100.0)
    assert AT * 0.75 < after.bytes_below(TOKENS) <= AT * 0.9
    assert after.ceiling == after.bytes_per_token
    assert after.until > 100.0
    assert "4 of 39" in after.reason


def test_it_never_falls_below_the_least() -> None:
    counts = told((70, 0, 50), (AT * 0.9, 0, 50))
    after = judge(START, LENGTH, counts, no_counts(), SETTINGS, 0.0)
    assert after.bytes_per_token == SETTINGS.least_bytes_per_token
    assert judge(after, LENGTH, counts, no_counts(), SETTINGS, 0.0) is after


def test_one_refusal_proves_nothing_and_stops_the_rise() -> None:
    counts = told((AT * 0.9, 100, 1))
    assert judge(START, LENGTH, counts, no_counts(), SETTINGS, 0.0) is START


def test_a_client_that_is_refused_everywhere_moves_nothing() -> None:
    bad = told((AT * 0.9, 10, 40))
    assert judge(START, LENGTH, bad, bad, SETTINGS, 0.0) is START
    # Where the larger cells got none of that size, what they refuse at all is the measure.
    elsewhere = told((10_000, 10, 40))
    assert judge(START, LENGTH, bad, elsewhere, SETTINGS, 0.0) is START


def test_it_stays_below_what_was_refused_for_a_while_that_grows() -> None:
    near = told((AT * 0.9, STEP_SAMPLES, 0))
    burnt = replace(START, ceiling=1.5, until=100.0)
    assert judge(burnt, LENGTH, near, no_counts(), SETTINGS, 99.0) is burnt
    risen = judge(burnt, LENGTH, near, no_counts(), SETTINGS, 101.0)
    assert risen.bytes_per_token > 1.5
    again = judge(risen, LENGTH, told((AT * 0.9, 1, 5)), no_counts(), SETTINGS, 200.0)
    assert again.patience_s == 2 * burnt.patience_s


def test_it_never_rises_above_the_most() -> None:
    settings = CapabilitySettings(most_bytes_per_token=1.52)
    near = told((AT * 0.9, STEP_SAMPLES, 0))
    top = judge(START, LENGTH, near, no_counts(), settings, 0.0)
    assert top.bytes_per_token == 1.52
    assert judge(top, LENGTH, near, no_counts(), settings, 0.0) is top


class Pool:
    """A small and a large cell whose gateways report; prompts have `ratio` bytes a token."""

    def __init__(self, seed: int = 1, kept: tuple[BoundaryRecord, ...] = ()) -> None:
        self.random = random.Random(seed)
        self.learner = Learner(SETTINGS, kept)
        self.counts = {("m", LENGTH): no_counts(), ("m", 32768): no_counts()}
        self.small = self.leaked = self.long = 0
        self.now = 0.0

    def run(self, requests: int, ratio: float, bad: float = 0.0) -> None:
        """Half of the requests are short; a share of `bad` ones is refused wherever it goes."""
        for number in range(requests):
            size = self.random.randint(100, 3800) if number % 2 else self.random.randint(3000, 60_000)
            too_long = size / ratio > LENGTH
            below = self.learner.guide.bounds("m", LENGTH)[0].bytes_below
            here = size < below and self.random.random() < 0.5
            refused = self.random.random() < bad or (here and too_long)
            self.counts["m", LENGTH if here else 32768][bucket_of(size), int(refused)] += 1
            self.small += here
            self.long += too_long
            self.leaked += here and too_long
            if number % 20 == 0:
                self.now += GUIDE_INTERVAL_S + 1
                self.learner.learn(self.counts, {"m": [LENGTH, 32768]}, self.now)

    @property
    def bytes_per_token(self) -> float:
        return self.learner.guide.boundary("m", LENGTH).bytes_per_token


@pytest.mark.parametrize("ratio", [1.6, 2.5, 4.0, 6.0])
def test_what_a_token_is_worth_is_found_with_hardly_a_leak(ratio: float) -> None:
    pool = Pool()
    pool.run(40_000, ratio)
    assert 0.8 * ratio < pool.bytes_per_token < 1.12 * ratio
    assert pool.leaked <= 0.01 * pool.long
    assert pool.small > 1000


def test_other_text_lowers_it_within_a_few_requests() -> None:
    pool = Pool()
    pool.run(40_000, 4.0)
    before = pool.leaked
    pool.run(2_000, 2.0)
    assert pool.bytes_per_token < 2.3
    assert pool.leaked - before < 40


def test_bad_requests_everywhere_do_not_keep_it_down() -> None:
    pool = Pool()
    pool.run(60_000, 4.0, bad=0.2)
    assert pool.bytes_per_token >= 1.4


def test_counts_that_start_anew_are_taken_as_they_are() -> None:
    learner, classes = Learner(SETTINGS), {"m": [LENGTH, 32768]}
    before = {("m", LENGTH): told((AT * 0.9, 20_000, 40)), ("m", 32768): told((50_000, 100, 0))}
    learner.learn(before, classes, 10.0)
    assert learner.guide.boundary("m", LENGTH).bytes_per_token >= 1.5
    # The gateways' reports began again, and the first thing they tell is that much is refused.
    after = {("m", LENGTH): told((AT * 0.9, 0, 40)), ("m", 32768): told((50_000, 1, 0))}
    assert learner.learn(after, classes, 20.0)
    assert learner.guide.boundary("m", LENGTH).bytes_per_token < 1.5


def test_boundaries_are_kept_within_the_settings() -> None:
    pool = Pool(kept=(BoundaryRecord("m", LENGTH, 3.25), BoundaryRecord("n", 4096, 99.0)))
    assert pool.bytes_per_token == 3.25
    assert pool.learner.records() == (
        BoundaryRecord("m", LENGTH, 3.25),
        BoundaryRecord("n", 4096, SETTINGS.most_bytes_per_token),
    )


def test_a_boundary_is_forgotten_when_its_class_is_gone_for_the_retention() -> None:
    kept = (BoundaryRecord("m", LENGTH, 3.25), BoundaryRecord("n", 4096, 2.0))
    learner, there = Learner(SETTINGS, kept), {"m": [LENGTH, 32768]}
    assert learner.prune(there, 0.0, 600.0) == []
    # It is back for a moment, and its time begins anew.
    assert learner.prune({**there, "n": [4096, 8192]}, 500.0, 600.0) == []
    assert learner.prune(there, 700.0, 600.0) == []
    assert learner.prune(there, 1299.0, 600.0) == []
    guide = learner.guide
    assert learner.prune(there, 1300.0, 600.0) == [("n", 4096)]
    assert learner.records() == (BoundaryRecord("m", LENGTH, 3.25),)
    assert learner.guide is not guide
    assert set(learner.guide.boundaries) == {("m", LENGTH)}
    assert learner.prune({}, 1400.0, 600.0) == []
    assert learner.prune({}, 2000.0, 600.0) == [("m", LENGTH)]


def test_nothing_is_learned_where_that_is_switched_off_but_the_mix() -> None:
    learner = Learner(CapabilitySettings(learn=False))
    counts = {("m", LENGTH): told((AT * 0.9, 500, 0)), ("m", 32768): told((50_000, 100, 0))}
    assert learner.learn(counts, {"m": [LENGTH, 32768]}, 10.0)
    assert learner.records() == ()
    assert sum(learner.guide.mix["m"].values()) == pytest.approx(1.0)
    assert learner.guide.mix["m"][32768] > 0.8


def test_the_guide_changes_only_when_something_would_move_by_it() -> None:
    learner = Learner(SETTINGS)
    counts = {("m", LENGTH): told((200, 100, 0)), ("m", 32768): told((5_000, 100, 0))}
    assert learner.learn(counts, {"m": [LENGTH, 32768]}, 10.0)
    guide = learner.guide
    for turn in range(10):
        counts = {key: each * 1.01 for key, each in counts.items()}
        assert not learner.learn(counts, {"m": [LENGTH, 32768]}, 20.0 + 10 * turn)
    assert learner.guide is guide


@given(st.integers(16, 10**6), st.floats(1.0, 8.0))
def test_bounds_leave_room_for_the_output_that_is_asked_for(length: int, ratio: float) -> None:
    guide = Guide(SETTINGS, {("m", length): Boundary(ratio)})
    silent, *asked = guide.bounds("m", length)
    assert silent.output_from is None
    assert silent.bytes_below >= 0
    for bound in asked:
        assert bound.output_from is not None
        assert bound.output_below is not None
        assert 0 <= bound.output_from < bound.output_below <= length
        assert bound.bytes_below / ratio + bound.output_below + SETTINGS.reserve_tokens <= length + 1e-6
    outputs = [bound.output_from for bound in asked]
    assert outputs == sorted(outputs)
