"""When clients see an SLO broken, and the figures of `lead-time`."""

from __future__ import annotations

import pytest

from headrace_lab.load.arrivals import Arrival
from headrace_lab.sim.jobs import Job
from headrace_lab.sim.lead import Warned, breach, lead_figures


def jobs(ttfts: list[float], gap_s: float = 0.5) -> list[Job]:
    found = []
    for number, ttft in enumerate(ttfts):
        job = Job(Arrival(number, 0.0, "short", 100, 10), 100.0 + number * gap_s, 500)
        job.first_token_at = job.sent_at + ttft if ttft >= 0 else -1.0
        found.append(job)
    return found


def test_a_breach_is_seen_once_the_quantile_is_beyond() -> None:
    sent = jobs([0.1] * 40 + [2.0] * 10)
    # The window holds 21 requests: the second slow one lifts the P95.
    assert breach(sent, 1.0, 100.0, 1000.0) == pytest.approx(100.0 + 41 * 0.5 + 1.0)


def test_who_never_answers_breaks_it_when_the_slo_has_passed() -> None:
    assert breach(jobs([0.1] * 40 + [-1.0] * 10), 1.0, 100.0, 1000.0) == pytest.approx(121.5)


def test_one_slow_request_is_no_breach() -> None:
    assert breach(jobs([0.1] * 30 + [9.0] + [0.1] * 30), 1.0, 100.0, 1000.0) is None


def test_what_was_before_the_stress_does_not_count() -> None:
    assert breach(jobs([2.0] * 10 + [0.1] * 60), 1.0, 120.0, 1000.0) is None


def test_leads_are_those_of_stresses_that_broke_the_slo() -> None:
    def warned(alert: float | None, broke: float | None, constant: float = 20.0) -> Warned:
        return Warned("thermal", "c", constant, 60.0, alert, broke, None)

    found = [warned(70.0, 90.0), warned(72.0, 80.0), warned(70.0, None), warned(66.0, 70.0, 5.0)]
    figures = lead_figures(found, 20.0)
    assert figures["lead_s_mean"] == pytest.approx(14.0)
    assert figures["lead_s_min"] == pytest.approx(8.0)
    assert (figures["stresses"], figures["alerts"], figures["breaches_under_rr"]) == (3, 3, 2)
    assert figures["lead_s_mean.thermal.5s"] == pytest.approx(4.0)
    assert figures["slo_breaches"] == 0
    assert figures["unwarned"] == 0
    assert lead_figures([*found, warned(None, 70.0)], 20.0)["unwarned"] == 1, "it has no lead to count"
