"""The error estimate moves with evidence, and only what exceeds the pool counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure import ErrorEstimator, excess
from headrace_controller.pressure.errors import ErrorRecord
from headrace_controller.settings import PressureSettings
from tests.unit.controller.inventory.builders import beat, fleet_of, hello, telemetry

SURE = np.full(5, np.inf)
"""So many samples that nothing is chance."""
KINDS = {"ok": 0, "client_errors": 1, "throttled": 2, "server_errors": 3}


class Counter:
    """A fleet whose cells answer requests."""

    def __init__(self, *cells: str, samples: float = 50.0, least: float = 10.0) -> None:
        self.fleet: Fleet = fleet_of(*cells)
        self.errors = ErrorEstimator(PressureSettings(error_samples=samples, error_min_samples=least))
        self.fleet.totals[: len(cells)] = 0.0

    def answer(self, cell: str, **counts: int) -> None:
        for kind, count in counts.items():
            self.fleet.evidence[self.fleet.row(cell), KINDS[kind]] += count

    def estimate(self, cell: str) -> float:
        return float(self.errors.estimate(self.fleet)[self.fleet.row(cell)])


def test_too_few_samples_say_nothing() -> None:
    counter = Counter("a")
    counter.answer("a", client_errors=9)
    assert math.isnan(counter.estimate("a"))
    counter.answer("a", ok=1)
    assert counter.estimate("a") == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("kind", ["client_errors", "throttled", "server_errors"])
def test_every_kind_of_failure_counts(kind: str) -> None:
    counter = Counter("a")
    counter.answer("a", ok=100, **{kind: 100})
    assert counter.estimate("a") == pytest.approx(0.5)


@pytest.mark.parametrize(
    "way", [(CellState.FAILED, CellState.LOADING), (CellState.FAILED,), (CellState.LOADING,)]
)
def test_an_engine_that_has_come_back_begins_anew(way: tuple[CellState, ...]) -> None:
    """What its death cut off was held against the next one, at weight 1, for a hundred requests."""
    counter = Counter("a", "b")
    row = counter.fleet.row("a")
    counter.fleet.state[row] = CellState.READY
    counter.answer("a", ok=50)
    counter.estimate("a")
    for state in way:
        counter.fleet.state[row] = state
        counter.answer("a", server_errors=4)
        counter.estimate("a")
    assert counter.errors.record(counter.fleet, row) == ErrorRecord()
    counter.fleet.state[row] = CellState.READY
    counter.answer("a", server_errors=1)
    assert math.isnan(counter.estimate("a"))
    counter.answer("a", ok=10)
    assert counter.estimate("a") == 0.0
    counter.answer("a", server_errors=10)
    assert counter.estimate("a") == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(("failed_of_ten", "enough"), [(10, 11), (5, 11), (3, 17)])
def test_successes_in_a_row_clear_whom_they_can_hardly_come_from(failed_of_ten: int, enough: int) -> None:
    """At weight 1 a request may come once in a minute: fifty would take an hour."""
    counter = Counter("a")
    for _ in range(20):
        counter.answer("a", ok=10 - failed_of_ten)
        counter.estimate("a")
        counter.answer("a", server_errors=failed_of_ten)
        before = counter.estimate("a")
    for _ in range(enough - 2):
        counter.answer("a", ok=1)
        assert counter.estimate("a") > 0.6 * before
    counter.answer("a", ok=3)
    assert counter.estimate("a") == 0.0
    counter.answer("a", server_errors=1)
    assert counter.estimate("a") > 0.0, "and a new failure counts at once"


def test_one_that_fails_a_third_of_its_requests_is_hardly_ever_cleared() -> None:
    counter, random = Counter("a"), np.random.default_rng(7)
    counter.answer("a", ok=35, server_errors=15)
    low = 0
    for failed in random.random(20_000) < 0.3:
        counter.answer("a", **({"server_errors": 1} if failed else {"ok": 1}))
        low += counter.estimate("a") < 0.05
    assert low < 0.01 * 20_000


def test_a_cell_that_is_only_registered_again_keeps_what_is_known() -> None:
    """A controller that starts anew has restored it."""
    counter = Counter("a")
    row = counter.fleet.row("a")
    counter.fleet.state[row] = CellState.LOADING
    counter.errors.restore(counter.fleet, row, ErrorRecord(30.0, 50.0, 60.0, math.nan, True))
    counter.estimate("a")
    counter.fleet.state[row] = CellState.READY
    assert counter.estimate("a") == pytest.approx(0.6)
    for _ in range(9):
        counter.answer("a", ok=1)
        assert counter.estimate("a") > 0.3
    counter.answer("a", ok=3)
    assert counter.estimate("a") == 0.0, "and what is restored can be cleared"


def test_whoever_takes_the_row_of_a_cell_that_was_gone_begins_like_anybody() -> None:
    counter = Counter("a")
    row = counter.fleet.row("a")
    for state in (CellState.READY, CellState.FAILED):
        counter.fleet.state[row] = state
        counter.estimate("a")
    counter.fleet.remove("a")
    counter.fleet.register("n", "s", hello("b"), 0.0)
    row = counter.fleet.row("b")
    counter.fleet.state[row] = CellState.READY
    counter.errors.restore(counter.fleet, row, ErrorRecord(30.0, 50.0, 60.0, math.nan, True))
    assert counter.estimate("b") == pytest.approx(0.6)


def test_with_no_new_samples_the_estimate_stays_for_ever() -> None:
    counter = Counter("a")
    counter.answer("a", client_errors=100)
    first = counter.estimate("a")
    assert [counter.estimate("a") for _ in range(10_000)][-1] == first == pytest.approx(1.0)


def test_new_samples_clear_it_at_the_rate_of_the_memory() -> None:
    counter = Counter("a", samples=50)
    counter.answer("a", ok=950, client_errors=50)
    first = counter.estimate("a")
    counter.answer("a", ok=50)
    assert counter.estimate("a") == pytest.approx(first * math.exp(-1), rel=0.02)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=20))
def test_an_estimate_is_a_share_whatever_comes(batches: list[tuple[int, int]]) -> None:
    counter = Counter("a")
    for ok, bad in batches:
        counter.answer("a", ok=ok, server_errors=bad)
        estimate = counter.estimate("a")
        assert math.isnan(estimate) or 0.0 <= estimate <= 1.0


def test_one_batch_of_many_equals_many_batches_of_the_same() -> None:
    at_once, in_turn = Counter("a"), Counter("a")
    at_once.answer("a", ok=60, client_errors=20)
    for _ in range(20):
        in_turn.answer("a", ok=3, client_errors=1)
        in_turn.estimate("a")
    assert at_once.estimate("a") == pytest.approx(in_turn.estimate("a"))


def test_a_plain_rate_stands_in_where_no_failures_are_counted_and_is_kept() -> None:
    fleet = fleet_of("a")
    errors = ErrorEstimator(PressureSettings())
    fleet.apply("n-a", telemetry(beat("a", signals={"error_rate": 0.3}, totals={"ok": 5})), 1.0)
    assert errors.estimate(fleet)[0] == 0.3
    fleet.apply("n-a", telemetry(beat("a", signals={}, totals={"ok": 50})), 2.0)
    assert errors.estimate(fleet)[0] == 0.3


def test_counts_come_before_a_plain_rate() -> None:
    """A rate over one request must not evict a cell where counts can tell how many there were."""
    fleet = fleet_of("a")
    errors = ErrorEstimator(PressureSettings())
    fleet.apply("n-a", telemetry(beat("a", totals={"ok": 0, "client_errors": 0})), 1.0)
    signals = {"error_rate": 1.0}
    fleet.apply("n-a", telemetry(beat("a", signals=signals, totals={"ok": 0, "client_errors": 1})), 2.0)
    assert math.isnan(errors.estimate(fleet)[0])


def test_an_agent_that_returns_takes_no_evidence_back_before_it_counts_anew() -> None:
    """Its first beats may have read nothing yet; a failing cell must not shine meanwhile."""
    fleet = fleet_of("a")
    errors = ErrorEstimator(PressureSettings())
    for now, bad in ((1.0, 0), (2.0, 50)):
        fleet.apply("n-a", telemetry(beat("a", totals={"ok": bad, "client_errors": bad})), now)
    before = errors.estimate(fleet)[0]
    assert before == pytest.approx(0.5)
    fleet.register("n-a", "s", hello("a", incarnation=2), 3.0)
    assert errors.estimate(fleet)[0] == before
    fleet.apply("n-a", telemetry(beat("a")), 3.5)
    assert errors.estimate(fleet)[0] == before
    fleet.apply("n-a", telemetry(beat("a", totals={"ok": 1, "client_errors": 1})), 4.0)
    assert errors.estimate(fleet)[0] == before


def test_an_engine_that_counts_no_failures_any_more_is_judged_by_its_plain_rate_again() -> None:
    fleet = fleet_of("a")
    errors = ErrorEstimator(PressureSettings())
    fleet.apply("n-a", telemetry(beat("a", totals={"ok": 0, "client_errors": 0})), 1.0)
    errors.estimate(fleet)
    fleet.register("n-a", "s", hello("a", incarnation=2), 3.0)
    fleet.apply("n-a", telemetry(beat("a", signals={"error_rate": 0.25}, totals={"ok": 7})), 3.5)
    assert errors.estimate(fleet)[0] == 0.25


def test_a_cell_that_takes_over_a_row_inherits_no_evidence() -> None:
    counter = Counter("a", "b")
    counter.answer("a", client_errors=100)
    counter.estimate("a")
    counter.fleet.remove("a")
    counter.fleet.register("n-c", "s", hello("c"), 1.0)
    counter.fleet.totals[0] = 0.0
    assert counter.fleet.row("c") == 0
    assert math.isnan(counter.estimate("c"))


@pytest.mark.parametrize(
    ("estimates", "expected"),
    [
        ([0.5], [0.0]),
        ([0.5, 0.1], [0.4, 0.0]),
        ([0.5, 0.0, 0.0], [0.5, 0.0, 0.0]),
        ([0.3, 0.3, 0.3], [0.0, 0.0, 0.0]),
        ([0.5, 0.5, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0, 0.0]),
        ([0.5, math.nan, 0.1], [0.4, math.nan, 0.0]),
        ([0.5, math.nan], [0.0, math.nan]),
    ],
    ids=["alone", "two", "one of three", "bad client", "two of five", "unknown", "no measure"],
)
def test_only_the_excess_over_the_others_counts(estimates: list[float], expected: list[float]) -> None:
    fleet = fleet_of(*"abcde"[: len(estimates)])
    over = excess(
        np.array(estimates), SURE[: len(estimates)], fleet.pools(), np.ones(len(estimates), dtype=bool)
    )
    np.testing.assert_allclose(over, expected)


def test_cells_that_do_not_serve_are_no_measure_for_others() -> None:
    fleet = fleet_of("a", "b", "c")
    ready = np.array([True, True, False])
    np.testing.assert_allclose(
        excess(np.array([0.5, 0.1, 0.9]), SURE[:3], fleet.pools(), ready), [0.4, 0.0, 0.6]
    )


def test_the_worst_of_its_pools_counts() -> None:
    fleet = fleet_of("a", "b", models=("x", "y"))
    fleet.register("n-c", "s", hello("c"), 0.0)
    fleet.state[:3] = CellState.READY
    over = excess(np.array([0.5, 0.1, 0.0]), SURE[:3], fleet.pools(), np.ones(3, dtype=bool))
    np.testing.assert_allclose(over, [0.4, 0.0, 0.0])


def test_what_chance_explains_is_no_excess() -> None:
    fleet = fleet_of("a", "b", "c")
    ready, samples = np.ones(3, dtype=bool), np.full(3, 99.0)
    lucky = excess(np.array([0.7, 0.6, 0.55]), samples, fleet.pools(), ready)
    np.testing.assert_allclose(lucky, [0.0, 0.0, 0.0])
    broken = excess(np.array([1.0, 0.6, 0.6]), samples, fleet.pools(), ready)
    assert broken[0] > 0.15


def test_an_estimator_that_takes_over_does_not_count_again_what_the_record_holds() -> None:
    """A changed setting makes a new one in a fleet that has counted for long."""
    counter = Counter("a")
    counter.answer("a", ok=10_000)
    counter.fleet.gateway_evidence[0] = (10_000, 0, 0, 0)
    counter.fleet.gateway_version = 7
    counter.estimate("a")
    counter.answer("a", server_errors=200)
    failing = counter.estimate("a")
    assert failing > 0.9
    record = counter.errors.record(counter.fleet, 0)
    counter.errors = ErrorEstimator(PressureSettings(error_samples=50.0, error_min_samples=10.0))
    counter.errors.restore(counter.fleet, 0, record)
    assert counter.estimate("a") == pytest.approx(failing)
    counter.answer("a", server_errors=10)
    assert counter.estimate("a") >= failing, "and it goes on counting"
