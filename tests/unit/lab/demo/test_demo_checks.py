"""Each condition of success can fail, and its failing fails the run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace_lab.demo import checks
from headrace_lab.demo.checks import Outcome
from headrace_lab.demo.result import Check, Result, records_path, tidy, write
from headrace_lab.stack.program import Exit, Spec
from headrace_lab.stack.stack import StopReport
from tests.support.clock import FakeClock
from tests.unit.lab.load.making import record

GOOD = Outcome(
    requests=400,
    good=398,
    not_sent=0,
    unexplained=0,
    cut_at_kill=2,
    detect_ms=80.0,
    post_kill_success=1.0,
    gap_points=2.0,
    nacks=0,
)


def failing(made: list[Check]) -> list[str]:
    return [check.name for check in made if check.enforced and not check.ok]


def test_a_good_run_passes() -> None:
    assert failing(checks.traffic(GOOD, baseline=False)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"requests": 0, "good": 0},
        {"not_sent": 1},
        {"unexplained": 1},
        {"detect_ms": 251.0},
        {"detect_ms": None},
        {"post_kill_success": 0.994},
        {"post_kill_success": None},
        {"gap_points": 5.1},
        {"gap_points": None},
    ],
)
def test_each_condition_can_fail(change: dict[str, Any]) -> None:
    assert len(failing(checks.traffic(replace(GOOD, **change), baseline=False))) == 1


def test_a_baseline_is_shown_not_judged_by_its_kill() -> None:
    bad = replace(GOOD, unexplained=9, detect_ms=None, post_kill_success=0.9, gap_points=20.0)
    assert failing(checks.traffic(bad, baseline=True)) == []
    assert len(failing(checks.traffic(replace(bad, not_sent=1), baseline=True))) == 1


@pytest.mark.parametrize(("count", "ok"), [(0, True), (1, False), (None, False)])
def test_nacks(count: float | None, ok: bool) -> None:
    assert checks.nacks(count).ok is ok


SPECS = [Spec("agent", ("a",)), Spec("cell", ("c",)), Spec("engine", ("e",), ours=False)]


@pytest.mark.parametrize(
    ("report", "count"),
    [
        (StopReport((Exit("agent", 0, 1.9),)), 0),
        (StopReport((Exit("agent", 0, 2.1),)), 1),
        (StopReport((Exit("agent", 1, 0.1),)), 1),
        (StopReport((Exit("agent", -9, 2.01, killed=True),)), 2),
        (StopReport((Exit("cell", -9, None, killed=True, planned=True),)), 0),
        (StopReport((Exit("cell", 1, None),)), 1),
        (StopReport((Exit("engine", 143, 9.0),)), 0),
        (StopReport((), ("x (pid 5)",)), 1),
        (StopReport((), (), (8000,)), 1),
    ],
)
def test_how_programs_must_end(report: StopReport, count: int) -> None:
    """Only this project's programs owe an exit status 0; nobody may stay."""
    assert len(failing(checks.ends(report, SPECS))) == count


def result(*made: Check) -> Result:
    figures = {"detect_ms": 80.123456789, "nothing": None, "endless": float("inf")}
    return Result("demo", 1, 40.0, [{"cell": "a"}], {"v3": {"requests": 1}}, figures, made)


def test_the_result_file_has_the_common_form(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write(
        path, result(Check("x", False, "1", "0"), Check("y", False, "", "", False)), [record()], FakeClock()
    )
    data = json.loads(path.read_text(encoding="utf-8"))
    assert {"scenario", "mode", "seed", "seconds", "fleet", "arms", "figures"} <= set(data)
    assert data["figures"] == {"detect_ms": 80.12346, "nothing": None, "endless": None}
    assert (data["mode"], data["worked"], data["failed_checks"]) == ("live", False, ["x"])
    assert {"command", "cores", "versions", "date"} <= set(data["environment"])
    assert data["environment"]["date"].startswith("2023-11-14")
    lines = records_path(path).read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["cell"] == "a"


def test_unenforced_checks_do_not_fail_a_run() -> None:
    assert result(Check("y", False, "", "", enforced=False)).worked
    assert not result(Check("y", False, "", "")).worked


def test_figures_that_are_no_numbers_become_null() -> None:
    assert [tidy(v) for v in (None, float("nan"), float("inf"), 0.0)] == [None, None, None, 0.0]
