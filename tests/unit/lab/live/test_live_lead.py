"""`lead-time` live: its time line, its alerts and its figures."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from headrace_lab.live.ask import Options, look_up
from headrace_lab.live.lead import breach, lead_figures, read_alerts, turns
from headrace_lab.live.seen import Alert
from headrace_lab.scenarios import packaged
from tests.support.clock import FakeClock
from tests.unit.lab.live.making import at, fault, run

PLAN = packaged().scenario("lead-time").lead
assert PLAN is not None
CELLS = [cell.id for cell in packaged().fleet("homogeneous").plans]
STRESSES = [packaged().stress(name) for name in PLAN.stresses]


def test_each_stress_strikes_each_cell_one_after_the_other() -> None:
    assert PLAN is not None
    seconds = look_up(Options("lead-time"), packaged()).seconds
    found = turns(PLAN, STRESSES, CELLS, seconds)
    assert [(each.stress, each.cell) for each in found] == [(s, c) for s in PLAN.stresses for c in CELLS]
    for before, after in pairwise(found):
        assert after.at_s >= before.over_s + PLAN.live.rest_s
    assert found[-1].over_s + PLAN.live.rest_s <= seconds
    assert turns(PLAN, STRESSES, CELLS, found[1].over_s) == found[:1]


def test_time_lines_are_compressed_as_the_time_constant_is() -> None:
    assert PLAN is not None
    first = turns(PLAN, STRESSES, CELLS, 10_000.0)[0]
    line = STRESSES[0].points
    faster = PLAN.reference_time_constant_s / PLAN.live.time_constant_s
    assert first.over_s - first.at_s == pytest.approx((line[-1].at_s - line[0].at_s) / faster)
    assert [p.cooling for p in first.points] == [p.cooling for p in line]


def test_a_breach_is_seen_when_a_request_has_waited_for_longer_than_the_slo() -> None:
    calm = [at(second / 2, 100.0) for second in range(40)]
    slow = [at(20 + second / 2, 900.0) for second in range(10)]
    assert breach(calm, 500.0, 0.0, 60.0) is None
    found = breach([*slow, *calm], 500.0, 10.0, 60.0)
    # Two of the twenty of a window: the 95th percentile is the higher.
    assert found == pytest.approx(20.5 + 0.5)
    assert breach([*slow, *calm], 500.0, 10.0, 20.8) is None
    assert breach([at(1.0, 900.0)] * 4, 500.0, 0.0, 60.0) is None


def test_alerts_are_read_from_the_events_that_begin_one_in_the_load() -> None:
    clock = FakeClock()
    start = clock.now()
    wall = clock.wall_ns() / 1e9

    def entry(after_s: float, kind: str = "alert", event: str = "early warning") -> dict[str, object]:
        when = datetime.fromtimestamp(wall + after_s, UTC).isoformat()
        return {"at": when, "kind": kind, "event": event, "cell": "east-1", "cause": "thermal: hot"}

    data = {
        "events": [
            *(entry(-5.0), entry(1.0, event="early warning over"), entry(2.0, "state", "drained")),
            entry(3.0),
        ]
    }
    clock.advance(10.0)
    (found,) = read_alerts(data, start, clock)
    assert (found.cell, found.said) == ("east-1", "thermal: hot")
    assert found.at_s == pytest.approx(3.0, abs=1e-3)


def test_leads_are_the_breach_of_the_plain_gateway_less_the_alert() -> None:
    assert PLAN is not None
    usual = tuple([100.0] * 20)
    slow = [at(10 + second / 2, 1000.0, cell="east-1") for second in range(40)]
    struck = [
        fault(10.0, kind="thermal", repaired_s=30.0),
        fault(60.0, kind="thermal", cells=("east-2",), repaired_s=80.0),
    ]
    plain = run("rr", records=tuple(slow), faults=tuple(struck), unloaded_ms=usual)
    alerts = (Alert("east-1", 11.0, ""), Alert("west-1", 12.0, ""), Alert("east-1", 35.0, "in its rest"))
    ours = run("weights", faults=tuple(struck), alerts=alerts, unloaded_ms=usual)
    found = lead_figures([plain, ours], PLAN, 2.5)
    assert found["slo_ms"] == 250.0
    assert (found["stresses"], found["alerts"], found["breaches_under_rr"]) == (2.0, 1.0, 1.0)
    # Five of its requests make a window: the fifth is due at 12.0, and has waited for the SLO at 12.25.
    assert found["lead_s_mean"] == found["lead_s_min"] == pytest.approx(12.25 - 11.0)
    assert found["lead_s_mean.thermal"] == found["lead_s_mean"]
    assert found["unwarned"] == 0.0
    silent = run("weights", faults=tuple(struck), unloaded_ms=usual)
    assert lead_figures([plain, silent], PLAN, 2.5)["unwarned"] == 1.0, "a breach without an alert"
    assert found["false_alarms"] == 1.0
    assert found["slo_breaches"] == 0.0
