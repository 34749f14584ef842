"""The figures of the demonstration: what is lost, what is explained, what follows the weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_lab.demo.figures import (
    Incident,
    cut_at_kill,
    post_kill_success,
    shares,
    unexplained,
    widest_gap,
)
from headrace_lab.load.records import Record
from tests.unit.lab.demo.making import history, sample
from tests.unit.lab.load.making import record

KILL = Incident("a", 10.0, 0.1)


def failed(sent_s: float, took_s: float, cell: str = "a") -> Record:
    return record(sent_s=sent_s, e2e_ms=took_s * 1e3, cell=cell, done=False, error="cut")


def test_cut_counts_those_open_on_the_killed_engine() -> None:
    records = [
        failed(9.5, 0.6),
        failed(9.9, 0.3, cell=""),
        failed(9.5, 0.6, cell="b"),
        failed(8.0, 1.0),
        failed(10.05, 0.1),
        record(sent_s=9.9, e2e_ms=500.0),
    ]
    assert cut_at_kill(records, KILL) == 2


@pytest.mark.parametrize(
    ("one", "explained"),
    [
        (failed(9.5, 0.6), True),
        (failed(10.05, 0.1, cell="b"), True),
        (failed(10.1, 0.1, cell=""), True),
        (failed(10.11, 0.1), False),
        (failed(9.5, 0.6, cell="b"), False),
        (failed(8.0, 1.0), False),
        (failed(30.0, 1.0, cell=""), False),
    ],
)
def test_only_the_kill_explains_failures(one: Record, explained: bool) -> None:
    assert (unexplained([one], KILL) == []) is explained


def test_a_good_request_needs_no_explanation() -> None:
    assert unexplained([record(sent_s=t) for t in (5.0, 10.05, 20.0)], KILL) == []


def test_success_counts_those_sent_after_the_kill() -> None:
    records = [failed(9.0, 2.0), record(sent_s=10.5), record(sent_s=11.0), failed(12.0, 1.0)]
    assert post_kill_success(records, KILL) == pytest.approx(2 / 3)
    assert post_kill_success([failed(9.0, 2.0)], KILL) is None


def test_shares_are_compared_with_the_weights_in_force() -> None:
    """Weights change on the way; each request is judged by those of its own moment."""
    seen = history(sample(100.0, a=100, b=100), sample(105.0, a=100, b=300))
    first = [record(sent_s=1.0, cell=c) for c in "ab"]
    then = [record(sent_s=6.0, cell=c) for c in "abbb"]
    found = shares(first + then, seen, 100.0, ["a", "b"], None)
    assert found["a"].actual == pytest.approx(2 / 6)
    assert found["a"].expected == pytest.approx((2 * 0.5 + 4 * 0.25) / 6)
    assert widest_gap(found) == pytest.approx(0.0, abs=1e-9)


def test_a_cell_that_gets_what_it_was_not_promised_shows() -> None:
    seen = history(sample(0.0, a=100, b=100))
    found = shares([record(cell="a")] * 10, seen, 0.0, ["a", "b"], None)
    assert widest_gap(found) == pytest.approx(50.0)


def test_the_time_in_which_the_dead_was_still_listed_is_left_out() -> None:
    seen = history(sample(0.0, a=100, b=100), sample(10.3, b=100))
    around = [record(sent_s=10.05, cell="b")] * 50
    found = shares([record(sent_s=5.0, cell=c) for c in "ab"] + around, seen, 0.0, ["a", "b"], KILL)
    assert widest_gap(found) == pytest.approx(0.0)


def test_nothing_to_compare_is_no_gap_of_zero() -> None:
    assert widest_gap(shares([], history(), 0.0, ["a"], None)) is None
    assert widest_gap(shares([record()], history(), 0.0, ["a"], None)) is None
    assert widest_gap(shares([record()], history(sample(0.0, a=0)), 0.0, ["a"], None)) is None


@given(st.lists(st.sampled_from("abc"), min_size=1), st.integers(1, 100), st.integers(1, 100))
def test_both_kinds_of_share_add_up_to_one(cells: list[str], a: int, b: int) -> None:
    seen = history(sample(0.0, a=a, b=b, c=1))
    found = shares([record(cell=c) for c in cells], seen, 0.0, ["a", "b", "c"], None)
    assert sum(s.actual for s in found.values()) == pytest.approx(1)
    assert sum(s.expected for s in found.values()) == pytest.approx(1)


def test_an_endpoint_that_never_went_explains_all_that_came_later_but_has_no_end() -> None:
    endless = Incident("a", 10.0, None)
    assert unexplained([failed(30.0, 1.0)], endless) == []
    assert unexplained([failed(5.0, 1.0)], endless) != []
