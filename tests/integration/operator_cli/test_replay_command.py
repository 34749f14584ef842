"""`headrace replay` over a recording that a control loop made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner, Result

from headrace_controller.control.recording.files import find_files
from headrace_controller.operator_cli import program
from headrace_controller.operator_cli.offline import ProjectionName, Scorer
from headrace_controller.settings import PressureSettings, ProjectionSettings
from tests.unit.controller.control.recording.test_recorder import Load


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve seconds in which c3 gets busy."""
    place = tmp_path_factory.mktemp("state")
    load = Load(place)
    load.run(6)
    load.queue["c3"] = 20.0
    load.run(6)
    load.close()
    return place


def replay(place: Path, *options: str) -> Result:
    return CliRunner().invoke(program.app, ["replay", str(place), *options])


def test_a_table_shows_what_would_have_changed(recording: Path) -> None:
    (file,) = find_files(recording)
    ended = replay(file, "--scorer", "v2", "--projection", "equalise")
    assert ended.exit_code == 0, ended.output
    first, pushes, greatest, _ = ended.stdout.splitlines()[:4]
    assert first.startswith("12 s, ")
    assert pushes.startswith("pushes: ")
    assert greatest.startswith("greatest change of a share: ")
    for cell in ("c1", "c2", "c3"):
        assert cell in ended.stdout


def test_json_says_the_same(recording: Path) -> None:
    report = json.loads(replay(recording, "--projection", "headroom", "--json").stdout)
    assert report["gateways"] == ["gw-1", "gw-2"]
    assert report["pushes_recorded"] == report["pushes_before"] > 0
    assert {row["cell"] for row in report["rows"]} == {"c1", "c2", "c3"}


def test_every_scorer_and_projection_of_the_settings_can_be_tried(recording: Path) -> None:
    scorers = get_args(PressureSettings.model_fields["scorer"].annotation)
    names = get_args(ProjectionSettings.model_fields["name"].annotation)
    assert {each.value for each in Scorer} == set(scorers)
    assert {each.value for each in ProjectionName} == set(names)
    for name in names:
        assert replay(recording, "--projection", name).exit_code == 0
