"""A recording tells what was learned of a cell's speed, and its reach; older ones are read without them."""

from __future__ import annotations

import json
import math

from headrace_controller.control.kept_fleet import KeptCell
from headrace_controller.control.recording.told import read_score, score_of
from headrace_controller.pressure import ErrorRecord, ScoreRecord, SpeedRecord

SPEED = SpeedRecord(-0.5, 90_000.0, 45.0, 3e7, 2e6)
RECORD = ScoreRecord((0.3,), ErrorRecord(1.0, 9.0, 9.0, 0.0, 9.0), 0.4, SPEED, (-0.7,))


def test_it_comes_back() -> None:
    assert read_score(json.loads(json.dumps(score_of(RECORD)))) == RECORD


def test_a_recording_from_before_knows_none() -> None:
    told = score_of(RECORD)
    del told["speed"], told["reach"]
    found = read_score(told)
    assert found.speed == SpeedRecord()
    assert found.reach == ()
    assert math.isclose(found.unloaded_ttft_s, 0.4)


def test_a_kept_fleet_holds_it() -> None:
    kept = KeptCell(id="a", node="n", site="s", host="h", port=1, speed=SPEED)
    again = KeptCell.model_validate_json(kept.model_dump_json())
    assert again.speed is not None
    assert SpeedRecord(*again.speed) == SPEED
    assert KeptCell(id="a", node="n", site="s", host="h", port=1).speed is None


def test_a_kept_fleet_holds_reaches_by_gateway_and_older_ones_none() -> None:
    kept = KeptCell(id="a", node="n", site="s", host="h", port=1, reach={"g": -0.7})
    assert KeptCell.model_validate_json(kept.model_dump_json()).reach == {"g": -0.7}
    assert KeptCell(id="a", node="n", site="s", host="h", port=1).reach == {}
