"""The kept fleet: read back whole, and a bad file means a cold start, never a wrong one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace_controller.control.kept_fleet import (
    FILE_NAME,
    KeptCell,
    KeptDrain,
    KeptErrors,
    KeptFleet,
    KeptFleetStore,
    KeptModel,
)

FLEET = KeptFleet(
    region="r",
    cells=(
        KeptCell(
            id="c1",
            node="n1",
            site="a",
            host="127.0.0.1",
            port=8000,
            models=(KeptModel(id="m", max_model_len=4096),),
            ready=True,
            weights={"m": {"gw-1": 70}},
            scores={"gw-1": 0.25},
            errors=KeptErrors(failed=25.0, total=50.0, seen=3000.0, counted=True),
            rtt_ms={"gw-1": 12.5},
            drain=KeptDrain(requested_by="operator", cause="fans", remaining_s=12.0),
        ),
        KeptCell(id="c2", node="n2", site="a", host="127.0.0.1", port=8001),
    ),
)


FULL = json.dumps(FLEET.model_dump(mode="json"))


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    store = KeptFleetStore(tmp_path / "deep" / "state", "r")
    assert store.load() is None
    assert store.save(FLEET)
    assert store.load() == FLEET


def test_only_nodes_with_a_ready_cell_are_waited_for() -> None:
    assert FLEET.nodes == {"n1"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 2, "region": "r"}',
        '{"version": 1, "region": "other"}',
        '{"version": 1, "x": 1}',
        "\x00",
        FULL.replace('"total": 50.0', '"total": NaN'),
        FULL.replace('"total": 50.0', '"total": -1.0'),
        FULL.replace('"rtt_ms": {"gw-1": 12.5}', '"rtt_ms": {"gw-1": "far"}'),
    ],
)
def test_a_file_that_cannot_be_used_is_a_cold_start(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    assert KeptFleetStore(tmp_path, "r").load() is None


def test_a_file_that_names_a_cell_twice_is_a_cold_start_that_says_so(tmp_path: Path) -> None:
    """Restored twice it would end the controller at every start."""
    twice = FLEET.model_dump(mode="json")
    twice["cells"].append(twice["cells"][0])
    (tmp_path / FILE_NAME).write_text(json.dumps(twice))
    with capture_logs() as lines:
        assert KeptFleetStore(tmp_path, "r").load() is None
    assert "cold" in lines[0]["event"]
    assert "c1" in lines[0]["error"]


def test_a_file_of_the_version_before_is_read(tmp_path: Path) -> None:
    """It has no scores, evidence, distances and drains."""
    old = FLEET.model_dump(mode="json")
    for cell in old["cells"]:
        for name in ("scores", "errors", "rtt_ms", "drain"):
            del cell[name]
    (tmp_path / FILE_NAME).write_text(json.dumps(old))
    kept = KeptFleetStore(tmp_path, "r").load()
    assert kept is not None
    assert [(cell.id, cell.ready, cell.weights, cell.errors, cell.drain) for cell in kept.cells] == [
        ("c1", True, {"m": {"gw-1": 70}}, None, None),
        ("c2", False, {}, None, None),
    ]


def test_a_disk_that_refuses_loses_nothing_else(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    store = KeptFleetStore(blocked, "r")
    assert store.save(FLEET) is False
    assert store.load() is None
    assert blocked.read_text() == ""


def test_a_torn_write_leaves_the_old_file(tmp_path: Path) -> None:
    store = KeptFleetStore(tmp_path, "r")
    store.save(FLEET)
    (tmp_path / "fleet.new").write_text('{"version": 1, "reg')
    assert store.load() == FLEET
