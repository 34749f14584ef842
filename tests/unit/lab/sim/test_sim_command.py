"""`headrace-lab sim` says what it cannot obey, before anything runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace_lab.cli import app
from headrace_lab.live.ask import Options, look_up
from headrace_lab.scenarios import packaged
from headrace_lab.sim.arms import controller_settings
from headrace_lab.sim.lead import routed_arm
from headrace_lab.sim.run import setup_of


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("dcgm-loss --arms rr,weights", "arm rr has no controller to watch"),
        ("lead-time --arms rr,oracle", "arm oracle has no controller to watch"),
        ("burst --hours 2", "--hours belongs to lead-time"),
        ("failover --network spread,step", "runs on one network and 2 are given"),
        ("homogeneous --tier lax", "tight, middle, loose"),
        ("controller-loss", "no sim mode"),
    ],
)
def test_an_option_that_cannot_be_obeyed_is_refused_with_what_to_do(words: str, said: str) -> None:
    ran = CliRunner().invoke(app, ["sim", *words.split()], env={"COLUMNS": "200"})
    assert ran.exit_code == 2
    plain = " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", "", ran.output).split())
    assert said in plain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pressure: {error_samples: 1}", "pressure.error_samples"),
        ("presure: {}", "presure"),
        ("- 1", "give fields of a controller's settings"),
        ("a: [", "--settings"),
    ],
)
def test_settings_that_no_controller_takes_are_refused_by_field(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "tried.yaml"
    file.write_text(text, encoding="utf-8")
    ran = CliRunner().invoke(app, ["sim", "burst", "--settings", str(file)], env={"COLUMNS": "200"})
    assert ran.exit_code == 2
    assert said in ran.output


def test_settings_that_are_tried_reach_the_controllers_and_no_other_arm() -> None:
    tried = {"projection": {"name": "headroom"}}
    given = look_up(Options("burst", arms=("rr", "weights", "headrace"), settings=tried), packaged(), "sim")
    setup = setup_of(given)
    made = {name: controller_settings(arm, setup.changes) for name, arm in given.arms.items()}
    assert made["rr"] is None
    assert made["weights"] is not None
    assert made["weights"].projection.name == "headroom"
    assert made["headrace"] is not None
    assert made["headrace"].picker.enabled


def test_the_arm_that_is_asked_for_is_the_one_that_warns() -> None:
    def arms(*names: str) -> str:
        return routed_arm(look_up(Options("lead-time", arms=names), packaged(), "sim"))

    assert arms() == "weights"
    assert arms("rr", "headrace") == arms("headrace") == "headrace"
    assert arms("rr") == "weights"
