"""What gateways saw counts in place of what agents count, never beside it."""

from __future__ import annotations

import math

import pytest

from headrace_controller.inventory.columns import NEVER
from headrace_controller.pressure import ErrorEstimator
from headrace_controller.settings import PressureSettings
from tests.unit.controller.inventory.builders import fleet_of

OK, CLIENT, THROTTLED, SERVER = range(4)
TRUST_S = 60.0


class Seen:
    """A cell that agents and gateways tell of."""

    def __init__(self) -> None:
        self.fleet = fleet_of("a", "b")
        self.errors = ErrorEstimator(PressureSettings(error_min_samples=10), TRUST_S)
        self.fleet.totals[:2] = 0.0

    def gateway(self, ok: float, failed: float, now: float, cell: str = "a") -> None:
        row = self.fleet.row(cell)
        self.fleet.gateway_evidence[row, OK] += ok
        self.fleet.gateway_evidence[row, CLIENT] += failed
        self.fleet.gateway_told_at[row] = now
        self.fleet.gateway_version += 1

    def agent(self, ok: float, failed: float, cell: str = "a") -> None:
        row = self.fleet.row(cell)
        self.fleet.evidence[row, OK] += ok
        self.fleet.evidence[row, CLIENT] += failed

    def estimate(self, now: float, cell: str = "a") -> float:
        return float(self.errors.estimate(self.fleet, now)[self.fleet.row(cell)])

    def seen(self) -> float:
        return self.errors.record(self.fleet, self.fleet.row("a")).seen


def test_the_same_requests_are_counted_once() -> None:
    seen = Seen()
    seen.gateway(50, 50, now=10.0)
    seen.agent(50, 50)
    assert seen.estimate(10.0) == pytest.approx(0.5)
    assert seen.seen() == 100
    # The agent's beat comes later than the log.
    seen.agent(20, 0)
    seen.estimate(10.5)
    assert seen.seen() == 100


def test_an_engine_that_counts_no_refusals_is_found_by_gateways() -> None:
    seen = Seen()
    seen.fleet.totals[seen.fleet.row("a"), CLIENT:] = math.nan
    seen.agent(100, 0)
    assert math.isnan(seen.estimate(1.0))
    seen.gateway(60, 40, now=2.0)
    seen.agent(60, 0)
    # The hundred before, that the agent told of, still count a little.
    assert seen.estimate(2.0) == pytest.approx(0.4 * (1.0 - (1.0 - 1.0 / 50) ** 100), abs=0.02)
    assert seen.errors.by_gateways is not None
    assert seen.errors.by_gateways.tolist() == [True, False]


def test_where_gateways_carry_nothing_the_agent_is_believed() -> None:
    seen = Seen()
    seen.gateway(100, 0, now=1.0, cell="b")
    seen.agent(50, 50)
    assert seen.estimate(1.0) == pytest.approx(0.5)


def test_when_gateways_fall_silent_the_agent_is_believed_again() -> None:
    seen = Seen()
    seen.gateway(100, 0, now=1.0)
    assert seen.estimate(1.0) == 0.0
    seen.agent(0, 100)
    assert seen.estimate(1.0 + TRUST_S) == 0.0
    seen.agent(0, 100)
    assert seen.estimate(1.1 + TRUST_S) > 0.8
    # Lost streams are said at once.
    seen.gateway(500, 0, now=100.0)
    assert seen.estimate(100.0) < 0.01
    seen.fleet.gateway_told_at[:] = NEVER
    seen.agent(0, 100)
    assert seen.estimate(100.1) > 0.8


def test_evidence_is_held_without_new_requests() -> None:
    seen = Seen()
    seen.gateway(0, 100, now=1.0)
    before = seen.estimate(1.0)
    assert [seen.estimate(1.0 + step / 10) for step in range(100)][-1] == before == pytest.approx(1.0)


def test_a_row_that_another_cell_takes_starts_without() -> None:
    seen = Seen()
    seen.gateway(0, 100, now=1.0)
    seen.estimate(1.0)
    seen.fleet.remove("a")
    seen.fleet.take_row()
    assert seen.fleet.gateway_evidence[0].tolist() == [0, 0, 0, 0]
    assert math.isnan(float(seen.errors.estimate(seen.fleet, 2.0)[0]))
