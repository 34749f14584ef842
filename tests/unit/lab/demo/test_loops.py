"""What a demo says of its two loops."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headrace_lab.demo import checks, programs
from headrace_lab.demo.fleet import simulated
from headrace_lab.demo.loops import Loops, check, read_loops, show
from headrace_lab.demo.run import Plan
from tests.unit.lab.demo.test_demo_checks import GOOD, failing

STATUS = {
    "picks": {"named": 380, "affinity": 10, "left": 4, "stale": 6},
    "prediction_error": 1.2,
    "guess_error": None,
}


def test_the_picker_as_the_controller_tells_it() -> None:
    found = read_loops(STATUS, 21.0)
    assert (found.named, found.error, found.guess_error) == (390, 1.2, None)
    assert found.figures() == {
        "xds_pushes": 21.0,
        "picks_named": 390.0,
        "picks": 400.0,
        "prediction_off_by": 1.2,
        "guess_off_by": None,
    }


@pytest.mark.parametrize(("named", "requests", "ok"), [(200, 400, True), (199, 400, False), (0, 0, False)])
def test_most_requests_must_be_named_a_cell(named: int, requests: int, ok: bool) -> None:
    assert check(Loops(picks={"named": named, "left": 5}), requests).ok is ok


def test_both_loops_are_shown() -> None:
    said = io.StringIO()
    show(Console(file=said, width=120), read_loops(STATUS, 21.0))
    text = said.getvalue()
    assert "slow loop: 21 resources pushed" in text
    assert "10 affinity, 4 left, 380 named, 6 stale" in text
    assert "off by 1.20 times, a plain guess by -" in text


def test_shares_follow_weights_only_without_a_picker() -> None:
    bad = replace(GOOD, gap_points=30.0)
    assert len(failing(checks.traffic(bad, baseline=False))) == 1
    assert failing(checks.traffic(bad, baseline=False, picker=True)) == []


def test_only_a_run_with_the_picker_switches_it_on(tmp_path: Path) -> None:
    fleet, settings = simulated(0), tmp_path / "controller.yaml"
    programs.controller(fleet, tmp_path)
    assert "picker" not in json.loads(settings.read_text(encoding="utf-8"))
    programs.controller(fleet, tmp_path, picker=True)
    assert json.loads(settings.read_text(encoding="utf-8"))["picker"] == {"enabled": True}
    assert Plan(10, 1, 1, picker=True).arm == "headrace"
