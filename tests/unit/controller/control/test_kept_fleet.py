"""The kept fleet: read back whole, and a bad file means a cold start, never a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_controller.control.kept_fleet import FILE_NAME, KeptCell, KeptFleet, KeptFleetStore, KeptModel

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
        ),
        KeptCell(id="c2", node="n2", site="a", host="127.0.0.1", port=8001),
    ),
)


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
    ],
)
def test_a_file_that_cannot_be_used_is_a_cold_start(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    assert KeptFleetStore(tmp_path, "r").load() is None


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
