"""An agent takes up a changed file while requests run: only what the change is about may move."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.whole_path.region import RESTED_S, Region
from tests.e2e.whole_path.traffic import failed, load, watching

pytestmark = pytest.mark.asyncio(loop_scope="package")

OWN = ("east-1", "east-2")
SETTLE_S = 2.5


class AgentFile:
    """The file of site east's agent."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._path = Path(region.program("agent east").spec.command[-1])
        self.original: dict[str, Any] = yaml.safe_load(self._path.read_text(encoding="utf-8"))

    async def reload(self, data: dict[str, Any], outcome: str) -> None:
        """Write the file, send SIGHUP, and wait until the agent counts one more reload of this outcome."""
        before = await self._count(outcome)
        self._path.write_text(yaml.safe_dump(data), encoding="utf-8")
        os.kill(self._region.program("agent east").pid, signal.SIGHUP)

        async def counted() -> bool:
            return await self._count(outcome) == before + 1

        await self._region.until(counted, f"a reload is {outcome}")

    async def _count(self, outcome: str) -> float:
        url = f"http://{self.original['metrics_listen']}/metrics"
        async with self._region.session.get(url) as response:
            page = await response.text()
        start = f'headrace_agent_reloads_total{{result="{outcome}"}} '
        (line,) = [line for line in page.splitlines() if line.startswith(start)]
        return float(line.removeprefix(start))


def without(data: dict[str, Any], cell: str) -> dict[str, Any]:
    return data | {"cells": [each for each in data["cells"] if each["id"] != cell]}


async def test_labels_cadences_and_sources_change_and_no_traffic_moves(region: Region) -> None:
    file = AgentFile(region)
    changed = file.original | {
        "cells": [each | {"labels": {"rack": "7"}} for each in file.original["cells"]],
        "engine": {**file.original["engine"], "scrape_interval_s": 0.4, "ttft_window_s": 25.0},
        "hardware": {**file.original["hardware"], "dcgm_interval_s": 0.3},
        "network": {"interval_s": 0.4},
        "log": {"format": "json", "level": "debug"},
    }
    await region.settled(RESTED_S)
    async with load(region) as under_way, watching(region) as watch:
        await under_way.sent(15)
        for data in (changed, file.original):
            await file.reload(data, "applied")
            await asyncio.sleep(SETTLE_S)
        await file.reload(changed | {"colour": "red"}, "refused")
        await file.reload(file.original, "unchanged")
        await under_way.sent(10)
        records = await under_way.finish()
    assert failed(records) == []
    # The load itself may move a weight a little, where a collector that began anew would move it at once.
    seen = watch.of(*OWN)
    assert all(None not in weights for weights in seen), seen
    for now, first in ((weights, seen[0]) for weights in seen):
        assert all(0.6 < mine / its < 1.7 for mine, its in zip(now, first, strict=True)), seen


async def test_a_cell_is_taken_out_and_put_back_without_a_failed_request(region: Region) -> None:
    file = AgentFile(region)
    async with load(region) as under_way:
        await under_way.sent(15)
        await file.reload(without(file.original, "east-2"), "applied")

        async def gone() -> bool:
            return "east-2" not in await region.hosts()

        print(f"gone from Envoy {await region.until(gone, 'east-2 is gone'):.2f} s after the reload")
        cell = (await region.cells())["east-2"]
        assert (cell["state"], cell["cause"]) == ("TERMINATED", "no longer in its agent's config")
        await under_way.sent(10)
        await file.reload(file.original, "applied")
        await region.serving()
        await under_way.reaches("east-2")
        records = await under_way.finish()
    assert failed(records) == []
