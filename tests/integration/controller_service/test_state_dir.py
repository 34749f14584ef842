"""Disks that refuse, and files that are not what they should be: a cold start, said once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_controller.control import keeper
from headrace_controller.control.kept_fleet import FILE_NAME
from tests.integration.controller_service.node import beating, speaking
from tests.integration.controller_service.running import serving, settings_of, until


@pytest.fixture(autouse=True)
def _quick_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "INTERVAL_S", 0.05)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def warnings_of(logs: list[Any]) -> list[Any]:
    return [each for each in logs if each.get("component") == "kept_fleet" and each["log_level"] != "info"]


async def test_a_disk_that_refuses_is_said_once_and_costs_nothing_else(
    tmp_path: Path, logs: list[Any]
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "fleet.new").mkdir()  # nobody can write a file of this name, not even root
    async with (
        serving(settings_of(state_dir=tmp_path / "state")) as running,
        speaking(running.telemetry) as node,
    ):
        await node.serve()
        async with beating(node):
            await until(running.serving_c1)

            async def said() -> bool:
                return bool(warnings_of(logs))

            await until(said)
            await asyncio.sleep(0.5)
            (warning,) = warnings_of(logs)
            assert warning["event"].startswith("kept fleet cannot be written")
            assert "state_dir" in warning["remedy"]
            (tmp_path / "state" / "fleet.new").rmdir()

            async def written() -> bool:
                return (tmp_path / "state" / FILE_NAME).exists()

            await until(written)
            assert (await running.cells())["c1"]["weights"] == {"gw-1": 100}
    assert len(warnings_of(logs)) == 1


GARBAGE = {
    "empty": b"",
    "cut": b'{"version": 1, "region": "berlin", "cells": [{"id": "c1"',
    "HTML": b"<html></html>",
    "binary": bytes(range(256)),
    "of a later version": b'{"version": 2, "region": "berlin"}',
    "of another region": b'{"version": 1, "region": "paris"}',
    "a port out of range": b'{"version": 1, "region": "berlin", "cells": [{"id": "c", "node": "n", '
    b'"site": "s", "host": "127.0.0.1", "port": 70000}]}',
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_a_kept_fleet_that_is_garbage_is_a_cold_start(
    tmp_path: Path, logs: list[Any], name: str
) -> None:
    (tmp_path / FILE_NAME).write_bytes(GARBAGE[name])
    async with serving(settings_of(state_dir=tmp_path)) as running:
        assert await running.cells() == {}
        (warning,) = warnings_of(logs)
        assert "starting cold" in warning["event"]
        async with speaking(running.telemetry) as node:
            await node.serve()
            await until(running.serving_c1)
    assert len(warnings_of(logs)) == 1


async def test_a_kept_fleet_that_is_no_ordinary_file_holds_up_nothing(
    tmp_path: Path, logs: list[Any]
) -> None:
    os.mkfifo(tmp_path / FILE_NAME)
    async with serving(settings_of(state_dir=tmp_path)) as running:
        assert await running.cells() == {}
    assert "no ordinary file" in warnings_of(logs)[0]["error"]


async def test_a_state_dir_that_cannot_be_made_is_a_cold_start(tmp_path: Path, logs: list[Any]) -> None:
    (tmp_path / "file").write_text("")
    async with serving(settings_of(state_dir=tmp_path / "file")) as running:
        assert await running.cells() == {}
    assert ["starting cold" in each["event"] for each in warnings_of(logs)] == [True]
