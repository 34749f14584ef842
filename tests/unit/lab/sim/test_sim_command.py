"""`headrace-lab sim` says what it cannot obey, before anything runs."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from headrace_lab.cli import app
from headrace_lab.live.ask import Options, look_up
from headrace_lab.scenarios import packaged
from headrace_lab.sim.lead import routed_arm


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


def test_the_arm_that_is_asked_for_is_the_one_that_warns() -> None:
    def arms(*names: str) -> str:
        return routed_arm(look_up(Options("lead-time", arms=names), packaged(), "sim"))

    assert arms() == "weights"
    assert arms("rr", "headrace") == arms("headrace") == "headrace"
    assert arms("rr") == "weights"
