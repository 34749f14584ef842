"""Which arms a simulation runs when none are named, and their ratios to the oracle."""

from __future__ import annotations

import pytest

from headrace_lab.scenarios import packaged
from headrace_lab.sim.commands import _with_oracle
from headrace_lab.sim.figures import latency_ratios


def test_the_oracle_joins_wherever_it_can_run() -> None:
    assert _with_oracle("burst", packaged()) == ("rr", "lr", "weights", "oracle")
    assert "oracle" in _with_oracle("jitter", packaged())
    assert _with_oracle("dcgm-loss", packaged()) == ()
    assert _with_oracle("lead-time", packaged()) == ()
    assert _with_oracle("no such scenario", packaged()) == ()


def test_a_ratio_to_the_oracle_is_less_where_an_arm_is_slower() -> None:
    found = {"ttft_p95_ms.oracle": 400.0, "ttft_p95_ms.rr": 800.0, "ttft_p95_ms.lr": None}
    assert latency_ratios(found, ["rr", "lr", "oracle"]) == {"ratio_vs_oracle.rr": pytest.approx(0.5)}
    assert latency_ratios({"ttft_p95_ms.rr": 800.0}, ["rr"]) == {}


def test_conditions_are_suffixes() -> None:
    found = {"ttft_p95_ms.oracle.clean": 90.0, "ttft_p95_ms.v3.clean": 100.0, "ttft_p95_ms.v3.step": 1.0}
    assert latency_ratios(found, ["v3", "oracle"], "clean") == {
        "ratio_vs_oracle.v3.clean": pytest.approx(0.9)
    }
