"""Engines that are killed or hang, under load."""

from __future__ import annotations

from datetime import datetime

import pytest

from headrace_lab.demo.figures import Incident, was_in_flight
from tests.e2e.whole_path.region import PATIENCE_S, Region
from tests.e2e.whole_path.traffic import failed, load

pytestmark = pytest.mark.asyncio(loop_scope="package")

DETECT_S = PATIENCE_S
"""For 250 ms on an idle machine."""
HOLD_DOWN_S = 1.0


async def gone(region: Region, cell: str) -> float:
    """Wait until Envoy holds no endpoint of the cell; the seconds it took."""

    async def absent() -> bool:
        return cell not in await region.hosts()

    return await region.until(absent, f"{cell} gone from Envoy", DETECT_S)


async def busy(region: Region, cell: str) -> None:
    """Wait until Envoy has a request open on the cell."""

    async def working() -> bool:
        return (await region.hosts())[cell].active > 0

    await region.until(working, f"{cell} is busy")


async def test_a_killed_engine_costs_only_what_it_held_and_comes_back(region: Region) -> None:
    async with load(region) as under_way:
        await under_way.sent(10)
        await busy(region, "east-2")
        at = under_way.now_s
        await region.kill("cell east-2")
        print(f"gone after {1e3 * await gone(region, 'east-2'):.0f} ms")
        await under_way.sent(10)
        await region.restart("cell east-2")
        print(f"serves {await region.serving():.1f} s after its restart")
        await under_way.reaches("east-2")
        records = await under_way.finish()
    incident = Incident("east-2", at, 0.0)
    assert failed(r for r in records if not was_in_flight(r, incident)) == []
    story = await region.story("east-2")
    fell, rose = (next(e for e in reversed(story) if e["to"] == to) for to in ("FAILED", "READY"))
    down = datetime.fromisoformat(rose["at"]) - datetime.fromisoformat(fell["at"])
    assert down.total_seconds() >= HOLD_DOWN_S, story
    await region.no_nacks()


async def test_a_hung_engine_is_left_out_and_comes_back(region: Region) -> None:
    """It accepts connections, so nothing but its silence tells."""
    async with load(region) as under_way:
        await under_way.sent(10)
        await region.fault("east-1", "hang")
        try:
            print(f"gone {await gone(region, 'east-1'):.2f} s after it hung")
            since = under_way.now_s
            assert await region.state("east-1") == "FAILED"

            async def enough() -> bool:
                return sum(r.ok and r.sent_s >= since for r in under_way.records) >= 15

            await region.until(enough, "15 requests sent since succeed")
            until = under_way.now_s
        finally:
            await region.fault("east-1", "clear")
        print(f"serves {await region.serving():.1f} s after it was cured")
        await under_way.reaches("east-1")
        records = await under_way.finish()
    meanwhile = [r for r in records if since <= r.sent_s < until]
    assert len(meanwhile) >= 15
    # Who of the others is asked how often is a matter of their weights.
    assert {r.cell for r in meanwhile} <= {"east-2", "west-1"}
    assert failed(r for r in records if r.sent_s >= since) == []
    await region.no_nacks()
