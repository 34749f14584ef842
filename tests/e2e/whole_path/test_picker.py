"""The picker of a real controller under load: it names cells, and costs no request when it is gone."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace_lab.load.records import Record
from tests.e2e.whole_path.region import Plan, Region, running_region
from tests.e2e.whole_path.traffic import Load, failed, load

PLAN = Plan(settings={"picker": {"enabled": True, "trickle": 0.0}})
AWAY_S = 2.0
STALL_S = 1.0


async def picks(region: Region, outcome: str = "named") -> float:
    """How often the picker has named a cell, or done something else."""
    async with region.session.get(f"{region.fleet.api_url}/metrics") as response:
        text = await response.text()
    found = re.search(rf'^headrace_picks_total{{outcome="{outcome}"}} (\S+)$', text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


@asynccontextmanager
async def picked_load(directory: Path) -> AsyncIterator[tuple[Region, Load]]:
    """A region with a picker under load, once it names cells; every request must be answered."""
    async with running_region(directory, PLAN) as region, load(region) as under_way:

        async def names() -> bool:
            return await picks(region) >= 20

        await region.until(names, "the picker names cells")
        await under_way.sent(10)
        yield region, under_way
        await under_way.sent(20)
        records = await under_way.finish()
        assert failed(records) == []
        await region.no_nacks()


def say(word: str, records: Sequence[Record], first_s: float, last_s: float) -> None:
    """Print how long the first token took for requests of a span."""
    times = sorted(r.ttft_ms for r in records if r.ok and r.ttft_ms and first_s <= r.sent_s < last_s)
    middle, worst = (times[len(times) // 2], times[-1]) if times else (0.0, 0.0)
    print(f"{word}: {len(times)} requests, first token after {middle:.0f} ms, worst {worst:.0f}")


async def test_a_controller_that_is_killed_costs_no_request(tmp_path: Path) -> None:
    async with picked_load(tmp_path) as (region, under_way):
        at = under_way.now_s
        await region.kill("controller")
        await asyncio.sleep(AWAY_S)
        assert any(r.sent_s > at for r in under_way.records if r.ok)
        say("with the picker", under_way.records, 0.0, at)
        say("without it", under_way.records, at, at + AWAY_S)
        await region.restart("controller")
        await region.serving()

        async def names() -> bool:
            return await picks(region) >= 10

        await region.until(names, "the picker names cells again")


@pytest.mark.parametrize("seconds", [STALL_S, 5.0])
async def test_a_controller_that_is_stopped_costs_no_request(tmp_path: Path, seconds: float) -> None:
    """For longer than connections to it are kept, too."""
    async with picked_load(tmp_path) as (region, under_way):
        before, at = await picks(region), under_way.now_s
        pid = region.program("controller").pid
        os.killpg(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.killpg(pid, signal.SIGCONT)
        say("with the picker", under_way.records, 0.0, at)
        say("while it is stopped", under_way.records, at, at + seconds)
        await region.serving()

        async def names() -> bool:
            return await picks(region) >= before + 10

        await region.until(names, "the picker names cells again")
