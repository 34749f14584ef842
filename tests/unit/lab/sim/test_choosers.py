"""Envoy's balancers, as they are modelled."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace_lab.load.arrivals import Arrival
from headrace_lab.sim.choosers import LeastRequest, Oracle, RoundRobin
from headrace_lab.sim.jobs import Job

HOSTS = ("a", "b", "c")


def job(tried: list[str] | None = None) -> Job:
    return Job(Arrival(1, 0.0, "short", 100, 10), 0.0, 500, tried=tried or [])


def picks(chooser: RoundRobin | LeastRequest, count: int) -> Counter[str | None]:
    return Counter(chooser.choose(job(), 0.0) for _ in range(count))


@pytest.mark.parametrize("seed", range(3))
def test_equal_weights_take_turns(seed: int) -> None:
    chooser = RoundRobin(seed)
    chooser.update(dict.fromkeys(HOSTS, 7), 0.0)
    order = [chooser.choose(job(), 0.0) for _ in range(9)]
    assert order[:3] == order[3:6] == order[6:]
    assert set(order) == set(HOSTS)


@pytest.mark.parametrize("seed", range(3))
def test_a_full_cycle_is_exact(seed: int) -> None:
    chooser = RoundRobin(seed)
    chooser.update({"a": 8, "b": 4, "c": 4}, 0.0)
    chooser.choose(job(), 0.0)
    assert picks(chooser, 96) == {"a": 48, "b": 24, "c": 24}


def test_a_heavy_host_is_spread_out_and_not_served_in_a_row() -> None:
    chooser = RoundRobin(1)
    chooser.update({"a": 2, "b": 1, "c": 1}, 0.0)
    order = [chooser.choose(job(), 0.0) for _ in range(40)]
    assert not any(x == y == z for x, y, z in zip(order, order[1:], order[2:], strict=False))


def test_the_same_weights_again_change_nothing() -> None:
    one, other = RoundRobin(5), RoundRobin(5)
    for chooser in (one, other):
        chooser.update({"a": 3, "b": 1}, 0.0)
    mine = []
    for _ in range(20):
        one.update({"a": 3, "b": 1}, 0.0)
        mine.append(one.choose(job(), 0.0))
    assert mine == [other.choose(job(), 0.0) for _ in range(20)]


def test_a_retry_goes_to_another_host() -> None:
    chooser = RoundRobin(1)
    chooser.update(dict.fromkeys(HOSTS, 1), 0.0)
    assert all(chooser.choose(job(["a", "b"]), 0.0) == "c" for _ in range(9))


def test_least_request_prefers_the_less_busy_of_two() -> None:
    active = {"a": 9, "b": 0, "c": 9}
    chooser = LeastRequest(1, active)
    chooser.update(dict.fromkeys(HOSTS, 1), 0.0)
    found = picks(chooser, 9000)
    # b is among two draws of three with a chance of 5/9.
    assert found["b"] / 9000 == pytest.approx(5 / 9, abs=0.02)


def test_least_request_with_weights_goes_by_weight_over_active() -> None:
    active = {"a": 0, "b": 1}
    chooser = LeastRequest(1, active)
    chooser.update({"a": 10, "b": 30}, 0.0)
    found = picks(chooser, 2000)
    # 10 / 1 against 30 / 2.
    assert found["b"] / found["a"] == pytest.approx(1.5, rel=0.02)


@pytest.mark.parametrize("chooser", [RoundRobin(1), LeastRequest(1, {})])
def test_nobody_is_chosen_where_there_is_nobody(chooser: RoundRobin | LeastRequest) -> None:
    assert chooser.choose(job(), 0.0) is None


def test_the_oracle_takes_the_soonest_that_takes_the_request() -> None:
    soon = {"a": None, "b": 0.5, "c": 0.3}
    oracle = Oracle(HOSTS, lambda cell, job, now: soon[cell])
    assert oracle.choose(job(), 0.0) == "c"
    assert oracle.choose(job(["c"]), 0.0) == "b"
    assert oracle.choose(job(["c", "b"]), 0.0) is None
