"""Rates, sizes, affinity, ejections and the guard, each by itself."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.picker.affinity import BLOCK_S, MAX_SESSIONS, SESSION_S, Prefixes, Sessions
from headrace_controller.picker.candidates import Lineup
from headrace_controller.picker.ejections import FAILURES, FIRST_S, SPREAD_S, Ejections
from headrace_controller.picker.fit import Fit
from headrace_controller.picker.guards import LONGEST_REST_S, REST_S, WINDOW, Guard
from headrace_controller.picker.prefix import block_names
from headrace_controller.picker.profiles import speed_of
from headrace_controller.picker.rates import FADE_S, HALF_S, Learner
from headrace_controller.picker.sizes import Sizes


@given(
    rows=st.lists(st.tuples(*[st.floats(0, 10)] * 4, st.floats(0.1, 1)), max_size=12),
    start=st.tuples(*[st.floats(0.01, 10)] * 3),
    trust=st.tuples(*[st.floats(0.5, 10)] * 3),
    size=st.none() | st.tuples(*[st.floats(0.01, 10)] * 3),
)
def test_the_fit_is_that_of_linear_algebra(
    rows: list[tuple[float, ...]],
    start: tuple[float, float, float],
    trust: tuple[float, float, float],
    size: tuple[float, float, float] | None,
) -> None:
    fit, moments, answers = Fit(), np.zeros((3, 3)), np.zeros(3)
    for a, b, c, value, weight in rows:
        fit.add((a, b, c), value, weight, 0.9)
        x = np.array([a, b, c])
        moments, answers = 0.9 * moments + weight * np.outer(x, x), 0.9 * answers + weight * value * x
    known = np.array(trust) / np.array(size or start) ** 2
    expected = np.linalg.solve(moments + np.diag(known), answers + known * np.array(start))
    assert fit.solve(start, trust, size) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def teach(
    learner: Learner, slot: int, count: int, s_per_token: float, seed: int = 1, outliers: float = 0.0
) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        work, running = rng.lognormvariate(7.5, 1.0), rng.randint(0, 40)
        seconds = (0.02 + s_per_token * work + 0.0002 * running) * rng.lognormvariate(0, 0.1)
        if rng.random() < outliers:
            seconds *= 50
        learner.observe(slot, "m", work, running, seconds)


@pytest.mark.parametrize("outliers", [0.0, 0.05])
@pytest.mark.parametrize("tokens_per_s", [500, 5000, 50_000])
def test_rates_are_learned_whatever_they_start_from(tokens_per_s: float, outliers: float) -> None:
    learner = Learner(8000)
    learner.begin(0, "m", 1.0, 0.0)
    teach(learner, 0, 200, 1 / tokens_per_s, outliers=outliers)
    assert 1 / learner.rates(0).s_per_token == pytest.approx(tokens_per_s, rel=0.25 if outliers else 0.2)


def test_one_stalled_request_moves_little_and_a_slower_gpu_shows_soon() -> None:
    learner = Learner(8000)
    learner.begin(0, "m", 1.0, 0.0)
    teach(learner, 0, 100, 1e-4)
    before = learner.rates(0).s_per_token
    learner.observe(0, "m", 2000, 5, 60.0)
    assert learner.rates(0).s_per_token == pytest.approx(before, rel=0.3)
    teach(learner, 0, 30, 1e-4 / 0.6)
    assert learner.rates(0).s_per_token > 1.4 * before


def test_a_new_cell_starts_from_its_pool_and_its_gpus() -> None:
    learner = Learner(8000)
    learner.begin(0, "m", 1.0, 0.0)
    teach(learner, 0, 100, 1 / 2000)
    fresh = learner.begin(1, "m", speed_of(["NVIDIA A100-SXM4-80GB"]), 0.0)
    assert 1 / fresh.s_per_token == pytest.approx(2000 * 312 / 989, rel=0.15)
    assert 1 / learner.begin(2, "other", 1.0, 0.0).s_per_token == pytest.approx(8000)


def test_a_new_cell_promises_what_the_others_of_its_pool_show() -> None:
    """Edge cells answer in less than learning starts with: who was asked first must not be asked alone."""
    learner, rng = Learner(8000), random.Random(2)
    learner.begin(0, "m", 1.0, 0.0)
    for _ in range(300):
        work, running = rng.gauss(128, 30), rng.randint(0, 12)
        learner.observe(0, "m", work, running, 0.009 + 2e-5 * work + 1e-4 * running)
    fresh = learner.begin(1, "m", 1.0, 9.0)
    assert fresh.predict(128, 0) == pytest.approx(learner.rates(0).predict(128, 0), rel=0.05)


def test_what_a_cell_has_shown_fades_towards_its_pool() -> None:
    learner = Learner(8000)
    for slot in (0, 1):
        learner.begin(slot, "m", 1.0, 0.0)
    teach(learner, 1, 40, 5e-4)
    teach(learner, 0, 40, 1e-4)
    shown = learner.rates(1).predict(2000, 5)
    assert shown > 3 * learner.rates(0).predict(2000, 5)
    assert learner.fade(1, "m", FADE_S / 2) is None
    for second in range(1, 11 * int(HALF_S)):
        if second == int(HALF_S) // 2:
            assert learner.rates(1).predict(2000, 5) == pytest.approx(shown, rel=0.25)
        teach(learner, 0, 1, 1e-4, seed=second)
        learner.fade(0, "m", float(second))
        learner.fade(1, "m", float(second))
    like = learner.rates(0).predict(2000, 5)
    assert like == pytest.approx(0.221, rel=0.15)
    assert learner.rates(1).predict(2000, 5) == pytest.approx(like, rel=0.2)


@pytest.mark.parametrize(
    ("gpus", "speed"),
    [
        ((), 1.0),
        (("NVIDIA H100 80GB HBM3",), 1.0),
        (("NVIDIA H100 80GB HBM3",) * 4, 4.0),
        (("NVIDIA L40S",), 362 / 989),
        (("NVIDIA L40",), 181 / 989),
        (("NVIDIA L4",), 121 / 989),
        (("Tesla T4",), 65 / 989),
        (("Some GPU of tomorrow",), 1.0),
    ],
)
def test_what_gpus_can_do(gpus: tuple[str, ...], speed: float) -> None:
    assert speed_of(gpus) == pytest.approx(speed)


def test_sizes_are_learned_by_pool() -> None:
    sizes = Sizes(4.0)
    assert sizes.tokens("m", 4000, np.inf) == 1000
    for _ in range(200):
        sizes.learn("m", 6000, 2000)
    assert sizes.tokens("m", 6000, np.inf) == pytest.approx(2000, rel=0.02)
    assert sizes.tokens("n", 4000, np.inf) == 1000
    # What no cell could hold is no prompt of so many tokens.
    assert sizes.tokens("m", 10_000_000, 8192) == 8192
    assert sizes.tokens("m", 0, 8192) == 1
    for _ in range(300):
        sizes.note("m", 700)
    assert sizes.tokens("m", None, np.inf) == pytest.approx(700, rel=0.01)
    assert sizes.met_tokens("m") == pytest.approx(700, rel=0.01)
    rng = random.Random(4)
    for _ in range(2000):
        sizes.note("m", 100 if rng.random() < 0.9 else 5100)
    # Of 100 tokens nine are 900; of 5,100 one is 5,100: who looks in meets the long one.
    assert sizes.met_tokens("m") == pytest.approx((0.9 * 100**2 + 0.1 * 5100**2) / 600, rel=0.35)
    assert sizes.met_tokens("other") == sizes.mean_tokens("other")
    sizes.learn("m", 0, 5)
    sizes.keep(frozenset({"n"}))
    assert sizes.bytes_per_token("m") == 4.0


def test_sessions_are_forgotten_and_bounded() -> None:
    sessions = Sessions()
    sessions.note("m", "s", "a", 0.0)
    assert sessions.cell("m", "s", SESSION_S) == "a"
    assert sessions.cell("m", "s", SESSION_S + 1) == ""
    assert sessions.cell("n", "s", 0.0) == ""
    for number in range(MAX_SESSIONS + 5):
        sessions.note("m", str(number), "a", 0.0)
    assert len(sessions) == MAX_SESSIONS


LINEUP = Lineup("m", ("a", "b"), ("a", "b"), np.array([4, 7]), np.array([np.inf, np.inf]))


def test_only_an_unbroken_beginning_counts_as_cached() -> None:
    prefixes = Prefixes()
    prefixes.note(4, (1, 2, 3), 0.0)
    prefixes.note(7, (1,), 0.0)
    prefixes.note(7, (9, 3), 0.0)
    found = prefixes.cached(LINEUP, (1, 2, 3, 5), 100.0, 1.0)
    assert found is not None
    assert found.tolist() == [300.0, 100.0]
    assert prefixes.cached(LINEUP, (2, 3), 100.0, 1.0) is not None
    assert prefixes.cached(LINEUP, (8, 1, 2), 100.0, 1.0) is None
    assert prefixes.cached(LINEUP, (1, 2), 100.0, BLOCK_S + 1) is None
    prefixes.forget(4, 1.0)
    kept = prefixes.cached(LINEUP, (1, 2), 100.0, 1.0)
    assert kept is not None
    assert kept.tolist() == [0.0, 100.0]


@given(shared=st.integers(0, 6), model=st.sampled_from(["m", "n"]))
def test_equal_beginnings_have_equal_names(shared: int, model: str) -> None:
    common = b"x" * (256 * shared)
    one, two = (
        b'{"model": "m", "temperature": ' + t + b', "prompt": "' + common + rest * 1024 + b'"}'
        for t, rest in ((b"0", b"a"), (b"0.25", b"b"))
    )
    first, second = block_names(one, "m", 256), block_names(two, model, 256)
    same = sum(1 for a, b in zip(first, second, strict=True) if a == b)
    assert same == (max(0, (len(common) + 11) // 256) if model == "m" else 0)
    assert len(first) == min(64, (len(common) + 1024 + 13) // 256)


def test_bodies_without_a_prompt_have_no_names() -> None:
    assert block_names(b'{"model": "m"}' + b" " * 4096, "m", 256) == ()
    assert block_names(b"", "m", 256) == ()
    assert len(block_names(b'{"messages": [' + b"y" * 1_000_000, "m", 256)) == 64


def test_ejections_grow_and_a_success_ends_them() -> None:
    ejections = Ejections()
    assert [ejections.failed(4, 0.0) for _ in range(FAILURES)] == [False] * (FAILURES - 1) + [True]
    usable = ejections.usable(LINEUP, 1.0)
    assert usable is not None
    assert usable.tolist() == [False, True]
    assert not ejections.failed(4, 1.0)
    assert ejections.usable(LINEUP, FIRST_S) is None
    assert ejections.failed(4, FIRST_S)
    assert ejections.out(4, 2.9 * FIRST_S)
    assert not ejections.out(4, 3.1 * FIRST_S)
    ejections.worked(4)
    assert not ejections.failed(4, 100.0)


def test_errors_that_come_from_everywhere_are_likelier_the_request_s() -> None:
    ejections = Ejections()
    ejected = [ejections.erred(number % 4, 0.1 * number) for number in range(4 * (FAILURES + 1))]
    assert not any(ejected)
    # Of two that are broken each goes, if later.
    two = Ejections()
    assert sum(two.erred(number % 2, 0.1 * number) for number in range(4 * FAILURES)) == 2
    # What others did long ago does not count.
    alone = Ejections()
    alone.erred(1, 0.0)
    assert [alone.erred(0, SPREAD_S + 1.0) for _ in range(FAILURES)] == [False] * (FAILURES - 1) + [True]


def judged(guard: Guard, off: float, spread: float, count: int = 2 * WINDOW, now: float = 0.0) -> str:
    """The guard after requests whose times vary by `spread`, and which are predicted `off` times too low."""
    rng = random.Random(3)
    said = ""
    for _ in range(count):
        seconds = rng.lognormvariate(0, spread)
        said = guard.saw("m", seconds / off, seconds, now) or said
    return said


@pytest.mark.parametrize(
    ("off", "spread", "on"),
    [(1.0, 1.0, True), (1.3, 0.01, True), (2.0, 2.0, True), (3.0, 0.3, False), (8.0, 1.0, False)],
)
def test_the_guard_compares_with_a_guess(off: float, spread: float, on: bool) -> None:
    guard = Guard(0.005)
    said = judged(guard, off, spread)
    assert guard.on(0.0) is on
    assert bool(said) is not on
    standing = guard.standing(0.0)
    assert (standing.on, standing.reason) == (on, said)


def test_the_rest_doubles_and_good_times_forget_it() -> None:
    guard = Guard(0.005)
    now, rests = 0.0, []
    for _ in range(8):
        judged(guard, 9.0, 0.3, now=now)
        rests.append(guard.standing(now).until - now)
        now = guard.standing(now).until
        assert guard.on(now)
    assert rests[:2] == [REST_S, 2 * REST_S]
    assert rests[-1] == LONGEST_REST_S
    judged(guard, 1.0, 0.3, now=now)
    judged(guard, 9.0, 0.3, now=now)
    assert guard.standing(now).until - now == REST_S


def test_slow_picks_are_a_reason_too() -> None:
    guard = Guard(0.005)
    said = [guard.took(0.001 if number % 18 else 0.02, 0.0) for number in range(WINDOW)]
    assert said[-1].startswith("12 of 200 picks")
    assert not guard.on(0.0)
    calm = Guard(0.005)
    assert not any(calm.took(0.001 if number % 20 else 0.02, 0.0) for number in range(WINDOW))
    assert calm.standing(0.0).slow_share == pytest.approx(0.05)
