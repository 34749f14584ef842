"""An agent is killed, or stopped as for an upgrade: its engines are well, so no traffic moves."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.whole_path.region import RESTED_S, Region
from tests.e2e.whole_path.traffic import WeightWatch, failed, load, watching

pytestmark = pytest.mark.asyncio(loop_scope="package")

OWN = ("east-1", "east-2")
"""The cells of the agent that goes away."""
SILENT_S = 3.5
"""Past the age at which the controller drops the figures last told, and holds no score any longer."""


async def test_a_killed_agent_moves_no_traffic(region: Region) -> None:
    await region.settled(RESTED_S)
    async with load(region) as under_way, watching(region) as watch:
        await under_way.sent(20)
        await region.kill("agent east")
        print(f"marked telemetry_lost after {await told(region, lost=True):.2f} s")
        await asyncio.sleep(SILENT_S)
        assert {view["state"] for view in (await region.cells()).values()} == {"READY"}
        await region.restart("agent east")
        print(f"heard again after {await told(region, lost=False):.2f} s")
        await under_way.sent(15)
        records = await under_way.finish()
    assert failed(records) == []
    assert_held(watch)


async def test_an_agent_that_says_goodbye_moves_no_traffic(region: Region) -> None:
    await region.settled(RESTED_S)
    async with load(region) as under_way, watching(region) as watch:
        await under_way.sent(20)
        end = await region.sigterm("agent east")
        print(f"exit {end.code} after {end.sigterm_s:.2f} s")
        assert (end.code, end.killed) == (0, False)
        await asyncio.sleep(SILENT_S)
        assert {view["state"] for view in (await region.cells()).values()} == {"READY"}
        await region.restart("agent east")
        print(f"heard again after {await told(region, lost=False):.2f} s")
        await under_way.sent(15)
        records = await under_way.finish()
    assert failed(records) == []
    assert_held(watch)


def assert_held(watch: WeightWatch) -> None:
    """Envoy had the agent's cells all the time, with the same weights but for what the load itself moves."""
    seen = watch.of(*OWN)
    assert all(None not in weights for weights in seen), seen
    for weights in seen:
        assert all(0.6 < now / first < 1.7 for now, first in zip(weights, seen[0], strict=True)), seen


async def told(region: Region, *, lost: bool) -> float:
    """Wait until the agent's cells are all marked `telemetry_lost`, or all heard."""

    async def so() -> bool:
        cells = await region.cells()
        if lost:
            return all(cells[cell]["telemetry_lost"] for cell in OWN)
        return all(cells[c]["heartbeat_age_s"] < 1 and not cells[c]["telemetry_lost"] for c in OWN)

    return await region.until(so, f"{OWN} {'lose' if lost else 'have'} their telemetry")
