"""When weights are pushed, and which of them move."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.projection import Hysteresis, Members, Verdict
from headrace_controller.settings import ProjectionSettings


def members(
    weights: list[int],
    *,
    keys: list[int] | None = None,
    raw: list[float] | None = None,
    held: list[bool] | None = None,
    ramping: list[bool] | None = None,
) -> Members:
    m = len(weights)
    return Members(
        keys=np.array(keys if keys else range(1, m + 1), dtype=np.int64),
        weights=np.array([weights], dtype=np.int64),
        raw=np.array([raw if raw else [0.2] * m]),
        held=np.array(held if held else [False] * m, dtype=bool),
        ramping=np.array(ramping if ramping else [False] * m, dtype=bool),
    )


class Pusher:
    """A hysteresis with a clock; a call returns (reason, weights). A push may change a weight by any
    factor unless the test says otherwise."""

    def __init__(self, max_change: float = 10000, **fields: Any) -> None:
        self.hysteresis = Hysteresis(ProjectionSettings(max_change=max_change, **fields))
        self.now = 0.0

    def __call__(self, seconds: float, weights: list[int], **fields: Any) -> tuple[str, list[int]]:
        self.now += seconds
        found: Verdict = self.hysteresis.judge(members(weights, **fields), self.now)
        assert found.push is bool(found.reason)
        return found.reason, found.weights[0].tolist()


def test_the_first_is_pushed_as_it_is() -> None:
    assert Pusher()(0.0, [100, 50]) == ("first", [100, 50])


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.lists(st.floats(0, 5), max_size=30))
def test_an_equilibrium_pushes_nothing(weights: list[int], steps: list[float]) -> None:
    push = Pusher()
    push(0.0, weights)
    assert all(push(step, weights) == ("", weights) for step in steps)


@given(st.lists(st.lists(st.integers(91, 100), min_size=4, max_size=4), min_size=2, max_size=30))
def test_noise_within_the_deadband_pushes_nothing(noise: list[list[int]]) -> None:
    push = Pusher(deadband=0.1)
    push(0.0, noise[0])
    assert [push(1.0, weights)[0] for weights in noise[1:]] == [""] * (len(noise) - 1)


def test_a_change_past_the_deadband_waits_for_the_interval() -> None:
    push = Pusher(deadband=0.1, push_interval_s=1.0)
    push(0.0, [100, 100])
    assert push(0.5, [100, 50]) == ("", [100, 100])
    assert push(0.5, [100, 50]) == ("weights", [100, 50])
    assert push(0.2, [100, 20])[0] == ""
    assert push(0.8, [100, 20])[0] == "weights"


def test_who_stays_within_the_deadband_keeps_its_weight_while_others_move() -> None:
    push = Pusher(deadband=0.1)
    push(0.0, [100, 100, 60])
    assert push(1.0, [100, 50, 63]) == ("weights", [100, 50, 60])


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        (1, 2, False),
        (2, 1, True),
        (3, 1, True),
        (1, 3, True),
        (100, 99, False),
        (50, 44, True),
        (50, 46, False),
    ],
)
def test_small_weights_are_not_nervous_and_the_floor_is_reached(before: int, after: int, moves: bool) -> None:
    push = Pusher(deadband=0.1)
    push(0.0, [100, before])
    assert push(1.0, [100, after]) == (("weights", [100, after]) if moves else ("", [100, before]))


@pytest.mark.parametrize("keys", [[1, 2, 3], [1], [1, 3]])
def test_a_change_of_members_is_pushed_at_once(keys: list[int]) -> None:
    push = Pusher()
    push(0.0, [100, 100])
    assert push(0.01, [90] * len(keys), keys=keys)[0] == "membership"


def test_those_who_stay_keep_their_weights_when_others_come_and_go() -> None:
    push = Pusher(deadband=0.1)
    push(0.0, [100, 70, 40], keys=[5, 2, 9])
    assert push(0.1, [75, 95, 30], keys=[2, 5, 7]) == ("membership", [70, 100, 30])


def test_the_last_member_may_leave_and_come_back() -> None:
    push = Pusher()
    push(0.0, [100])
    assert push(0.1, [], keys=[]) == ("membership", [])
    assert push(5.0, [], keys=[]) == ("", [])
    assert push(0.1, [30]) == ("membership", [30])


def test_an_emergency_does_not_wait() -> None:
    push = Pusher(emergency=0.3)
    push(0.0, [100, 100], raw=[0.2, 0.2])
    assert push(0.05, [100, 80], raw=[0.2, 0.45])[0] == ""
    assert push(0.05, [100, 10], raw=[0.2, 0.6]) == ("emergency", [100, 10])
    assert push(0.05, [100, 5], raw=[0.2, 0.7])[0] == ""


def test_an_emergency_that_moves_no_weight_pushes_nothing() -> None:
    push = Pusher()
    push(0.0, [100], raw=[0.1])
    assert push(0.05, [100], raw=[0.9])[0] == ""


def test_relief_is_no_emergency() -> None:
    push = Pusher()
    push(0.0, [100, 1], raw=[0.1, 1.0])
    assert push(0.05, [100, 100], raw=[0.1, 0.1])[0] == ""


def test_a_held_cell_keeps_its_weight() -> None:
    push = Pusher()
    push(0.0, [100, 60])
    assert push(1.0, [100, 5], held=[False, True], raw=[0.2, 0.9]) == ("", [100, 60])
    assert push(1.0, [50, 5], held=[False, True]) == ("weights", [50, 60])
    assert push(1.0, [50, 5]) == ("weights", [50, 5])


def test_a_held_newcomer_gets_a_weight() -> None:
    assert Pusher()(0.0, [40], held=[True]) == ("first", [40])


def test_the_end_of_a_ramp_is_told_exactly() -> None:
    push = Pusher(deadband=0.1)
    push(0.0, [100, 95], ramping=[False, True])
    assert push(1.0, [100, 96], ramping=[False, True])[0] == ""
    assert push(1.0, [100, 100]) == ("weights", [100, 100])


def test_force_pushes_whatever_the_weights_are() -> None:
    hysteresis = Hysteresis(ProjectionSettings())
    hysteresis.judge(members([100]), 0.0)
    assert hysteresis.judge(members([100]), 0.01, "lifecycle").reason == "lifecycle"


def test_seeded_weights_count_as_pushed() -> None:
    hysteresis = Hysteresis(ProjectionSettings())
    hysteresis.seed(members([100, 30]), 0.0)
    assert hysteresis.judge(members([100, 31]), 5.0).reason == ""
    found = hysteresis.judge(members([100, 90], held=[False, True]), 5.0, "lifecycle")
    assert found.weights[0].tolist() == [100, 30]


@given(
    st.lists(st.lists(st.integers(1, 100), min_size=3, max_size=3), min_size=1, max_size=60),
    st.floats(0.01, 0.4),
)
def test_steady_pushes_keep_their_distance(series: list[list[int]], step: float) -> None:
    push, times = Pusher(push_interval_s=1.0), []
    for weights in series:
        if push(step, weights)[0] == "weights":
            times.append(push.now)
    assert all(later - earlier >= 1.0 - 1e-9 for earlier, later in itertools.pairwise(times))


def test_no_push_changes_a_weight_by_more_than_the_factor() -> None:
    push = Pusher(max_change=2.0)
    push(0.0, [100, 100])
    told = [push(1.0, [100, 1])[1][1] for _ in range(8)]
    assert told == [50, 25, 13, 7, 4, 2, 1, 1]
    told = [push(1.0, [100, 100])[1][1] for _ in range(8)]
    assert told == [2, 4, 8, 16, 32, 64, 100, 100]


@pytest.mark.parametrize("factor", [1.1, 1.5, 2.0, 7.3])
@given(series=st.lists(st.lists(st.integers(1, 100), min_size=3, max_size=3), min_size=2, max_size=20))
def test_a_weight_stays_within_reach_of_the_one_before(factor: float, series: list[list[int]]) -> None:
    push = Pusher(max_change=factor, deadband=0.0)
    last = push(0.0, series[0])[1]
    for weights in series[1:]:
        told = push(1.0, weights, raw=[1.0, 0.0, 0.5])[1]
        for old, new, asked in zip(last, told, weights, strict=True):
            assert abs(new - old) <= 1 or old / factor - 1e-9 <= new <= old * factor + 1e-9
            assert min(old, asked) <= new <= max(old, asked)
        last = told


def test_an_emergency_walks_on_without_waiting() -> None:
    push = Pusher(max_change=2.0, emergency=0.3)
    push(0.0, [100, 100], raw=[0.2, 0.2])
    walk = [push(0.1, [100, 1], raw=[0.2, 1.0]) for _ in range(8)]
    assert [weights[1] for _, weights in walk] == [50, 25, 13, 7, 4, 2, 1, 1]
    assert [reason for reason, _ in walk] == ["emergency"] * 7 + [""]


def test_an_emergency_that_passes_stops_its_walk() -> None:
    push = Pusher(max_change=2.0, emergency=0.3)
    push(0.0, [100, 100], raw=[0.2, 0.2])
    assert push(0.1, [100, 1], raw=[0.2, 1.0]) == ("emergency", [100, 50])
    assert push(0.1, [100, 60], raw=[0.2, 0.3])[0] == ""


def test_who_joins_or_ramps_is_not_limited() -> None:
    push = Pusher(max_change=2.0)
    push(0.0, [100, 2], ramping=[False, True])
    assert push(1.0, [100, 50], ramping=[False, True]) == ("weights", [100, 50])
    assert push(1.0, [100, 100]) == ("weights", [100, 100])
    assert push(0.1, [100, 100, 9], keys=[1, 2, 3]) == ("membership", [100, 100, 9])


def test_an_exact_weight_is_told_whatever_the_deadband_the_factor_and_the_hold() -> None:
    hysteresis = Hysteresis(ProjectionSettings())
    hysteresis.judge(members([100, 100]), 0.0)
    for number, weight in enumerate((99, 1, 100)):
        exact = members([100, weight], held=[False, True])._replace(exact=np.array([False, True]))
        assert hysteresis.judge(exact, 1.0 + number).weights[0].tolist() == [100, weight]


def test_a_twin_goes_its_own_way() -> None:
    hysteresis = Hysteresis(ProjectionSettings(max_change=10000))
    hysteresis.judge(members([100, 50]), 0.0)
    twin = hysteresis.fork()
    assert twin.judge(members([100, 10]), 1.0).weights[0].tolist() == [100, 10]
    assert hysteresis.pushed(members([100, 10]).keys).tolist() == [[100, 50]]
    assert twin.pushed(np.array([2, 7])).tolist() == [[10, 0]]


def test_what_is_wanted_for_long_is_told_however_little_it_is() -> None:
    hysteresis = Hysteresis(ProjectionSettings())
    firm = np.array([[True, True]])
    equal = members([100, 100])._replace(firm=firm)
    wanted = members([95, 100])._replace(keys=equal.keys, firm=firm)
    hysteresis.judge(equal, 0.0)
    assert not hysteresis.judge(wanted, 1.0).push
    assert not hysteresis.judge(wanted, 30.0).push
    assert not hysteresis.judge(wanted._replace(firm=~firm), 32.0).push
    found = hysteresis.judge(wanted, 32.0)
    assert found.weights.tolist() == [[95, 100]]
    # And back, although to turn takes more.
    assert not hysteresis.judge(equal, 40.0).push
    assert hysteresis.judge(equal, 71.0).weights.tolist() == [[100, 100]]


def test_a_wish_that_goes_to_and_fro_is_not_told() -> None:
    hysteresis = Hysteresis(ProjectionSettings())
    equal = members([100, 100])
    hysteresis.judge(equal, 0.0)
    firm = np.array([[True, True]])
    for second in range(200):
        wanted = members([95 + second % 2, 100])._replace(keys=equal.keys, firm=firm)
        assert not hysteresis.judge(wanted, float(second)).push
