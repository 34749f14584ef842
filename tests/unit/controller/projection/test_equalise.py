"""The integral loop: it moves towards equal pressures, within its bounds, and does not wind up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_controller.projection import Asked, Equaliser
from headrace_controller.settings import ProjectionSettings


class Pool:
    """One pool of m cells at one gateway, whose gateways take every weight."""

    def __init__(self, m: int, **settings: Any) -> None:
        self.settings = ProjectionSettings(name="equalise", **settings)
        self.equaliser = Equaliser(self.settings)
        self.keys = np.arange(1, m + 1)
        self.now = 0.0

    def __call__(
        self, pressure: list[float], seconds: float = 1.0, push: bool = True, **fields: Any
    ) -> list[int]:
        self.now += seconds
        m = len(self.keys)
        asked = Asked(
            keys=self.keys,
            pressure=np.array([pressure]),
            ramp=np.array(fields.get("ramp", [1.0] * m)),
            pool=np.zeros(m, dtype=np.int64),
            pools=1,
            held=np.array(fields.get("held", [False] * m)),
            now=self.now,
            health=np.array(fields.get("health", [1.0] * m)),
        )
        weights = self.equaliser.step(asked)
        if push:
            self.equaliser.anchor(self.keys, weights)
        found: list[int] = weights[0].tolist()
        return found


def test_equal_pressures_move_nobody() -> None:
    pool = Pool(3)
    assert [pool([0.4, 0.4, 0.4]) for _ in range(50)] == [[100, 100, 100]] * 50


def test_a_difference_within_the_tolerance_moves_nobody_however_long() -> None:
    pool = Pool(2, tolerance=0.03)
    assert [pool([0.40, 0.45]) for _ in range(500)][-1] == [100, 100]


def test_who_is_above_its_pool_gives_and_gets_it_back() -> None:
    pool = Pool(2)
    down = [pool([0.2, 0.8])[1] for _ in range(20)]
    assert down == sorted(down, reverse=True)
    assert down[-1] < 60
    up = [pool([0.6, 0.2])[1] for _ in range(60)]
    assert up[-1] == 100


def test_the_floor_is_weight_1_and_nothing_winds_up_below_it() -> None:
    pool = Pool(2, gain=2.0)
    for _ in range(300):
        low = pool([0.0, 1.0])
    assert low == [100, 1]
    # One that wound up for five minutes would take five minutes to come back.
    assert next(n for n in range(60) if pool([1.0, 0.0])[1] > 5) <= 5


def test_a_step_is_bounded() -> None:
    pool = Pool(2, gain=10.0, max_change=2.0)
    pool([0.5, 0.5])
    assert pool([0.0, 1.0], seconds=1.0) == [100, 50]
    assert pool([0.0, 1.0], seconds=3600.0) == [100, 25]


def test_what_gateways_do_not_take_does_not_run_away() -> None:
    pool = Pool(2, gain=2.0, max_change=2.0)
    pool([0.5, 0.5])
    for _ in range(50):
        pool([0.0, 1.0], push=False)
        pool.equaliser.anchor(pool.keys, np.array([[100, 100]]))
    assert pool([0.0, 1.0], push=False)[1] >= 25


def test_held_and_ramping_members_are_not_moved_and_say_nothing() -> None:
    pool = Pool(3)
    for _ in range(60):
        weights = pool([0.4, 0.4, 1.0], held=[False, False, True])
    assert weights == [100, 100, 100]
    for _ in range(60):
        weights = pool([0.4, 0.4, 0.0], ramp=[1.0, 1.0, 0.5])
    assert weights == [100, 100, 50]
    assert pool([0.4, 0.4, 0.4]) == [100, 100, 100]


def test_a_sick_cell_falls_at_once_and_is_back_at_once() -> None:
    pool = Pool(2)
    pool([0.4, 0.4])
    assert pool([0.4, 0.4], health=[1.0, 0.0]) == [100, 1]
    for _ in range(100):
        pool([0.45, 0.4], health=[1.0, 0.0])
    assert pool([0.4, 0.4]) == [100, 100]


def test_who_joins_begins_in_the_middle_of_its_pool() -> None:
    pool = Pool(3)
    for _ in range(30):
        before = pool([0.2, 0.5, 0.8])
    pool.keys = np.array([1, 2, 3, 9])
    after = pool([0.4, 0.4, 0.4, 0.4])
    assert after[:3] == pytest.approx(before, abs=1)
    assert after[3] == pytest.approx(sorted(before)[1], abs=1)


def test_weights_known_from_before_are_where_it_begins() -> None:
    pool = Pool(2)
    pool.equaliser.anchor(pool.keys, np.array([[100, 20]]))
    assert pool([0.4, 0.4]) == [100, 20]


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.one_of(st.floats(0, 1), st.just(float("nan"))), min_size=4, max_size=4),
        min_size=1,
        max_size=20,
    ),
    st.permutations(range(4)),
)
def test_weights_are_in_bounds_and_do_not_depend_on_the_order(
    series: list[list[float]], order: list[int]
) -> None:
    one, other = Pool(4, gain=1.0), Pool(4, gain=1.0)
    other.keys = one.keys[order]
    for pressure in series:
        weights = one(pressure)
        assert all(1 <= weight <= 100 for weight in weights)
        turned = other([pressure[number] for number in order])
        assert turned == pytest.approx([weights[number] for number in order], abs=1)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.floats(0, 1))
def test_more_pressure_never_means_more_weight(pressure: list[float], more: float) -> None:
    lower, higher = Pool(3), Pool(3)
    worse = [*pressure[:2], pressure[2] + (1 - pressure[2]) * more]
    for _ in range(10):
        was, now = lower(pressure), higher(worse)
    assert now[2] <= was[2]
