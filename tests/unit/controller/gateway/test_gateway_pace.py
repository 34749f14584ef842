"""Sampling: everything below the rate, an even share above it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.gateway.pace import Pace


def test_below_the_rate_everything_is_read() -> None:
    pace = Pace(1000.0)
    for step in range(200):
        assert pace.choose(50, step * 0.1) == range(50)


def test_above_it_about_the_rate_is_read_and_each_stands_for_its_share() -> None:
    pace = Pace(1000.0)
    read = weighed = 0
    for step in range(300):
        chosen = pace.choose(1000, step * 0.1)
        if step >= 100:
            read += len(chosen)
            weighed += len(chosen) * chosen.step
    assert 700 * 20 <= read <= 1000 * 20
    assert abs(weighed - 200_000) <= 2000


def test_small_messages_are_sampled_too() -> None:
    pace = Pace(10.0)
    read = sum(len(pace.choose(1, step * 0.01)) for step in range(3000))
    assert 200 <= read <= 500


def test_after_a_rush_everything_is_read_again() -> None:
    pace = Pace(100.0)
    assert pace.choose(10_000, 0.0).step >= 100
    pace.choose(1, 20.0)
    assert pace.choose(10, 20.1) == range(10)


def test_the_share_that_is_read_follows_the_rush_and_its_end() -> None:
    pace = Pace(100.0)
    assert pace.share(0.0) == 1.0
    step = pace.choose(1000, 0.0).step
    assert pace.share(0.0) == 1.0 / step < 0.2
    assert pace.share(20.0) == 1.0


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(-5, 5)), max_size=50))
def test_indices_are_those_of_the_message_whatever_the_clock_does(steps: list[tuple[int, float]]) -> None:
    pace, now = Pace(20.0), 0.0
    for count, elapsed in steps:
        now += elapsed
        assert all(0 <= at < count for at in pace.choose(count, now))
