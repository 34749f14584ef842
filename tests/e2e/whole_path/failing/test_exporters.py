"""A GPU exporter dies under load: its cells are scored on what is left, and lose nothing."""

from __future__ import annotations

import pytest

from tests.e2e.whole_path.region import Region
from tests.e2e.whole_path.traffic import failed, load, watching

pytestmark = pytest.mark.asyncio(loop_scope="package")

OWN = ("east-1", "east-2")
KEPT_SHARE = 0.7
"""Of a weight, at least; these cells' GPUs differ from their peers', so that some of it may go."""


async def test_a_dead_exporter_costs_no_request(region: Region) -> None:
    async with load(region) as under_way:
        await under_way.sent(10)
        before = await region.settled(1.0)
        assert await fallbacks(region) == {"east-1": "", "east-2": "", "west-1": ""}
        async with watching(region) as watch:
            await region.kill("exporter east")
            print(f"in force after {await marked(region, 'dcgm_fallback'):.2f} s")
            await under_way.sent(20)
            lost = await region.cells()
            assert await fallbacks(region) == {
                "east-1": "dcgm_fallback",
                "east-2": "dcgm_fallback",
                "west-1": "",
            }
            assert {view["state"] for view in lost.values()} == {"READY"}
            assert lost["east-1"]["signals"]["gpu_util"] is None
            assert lost["east-1"]["pressure"] is not None
            await region.restart("exporter east")
            print(f"figures back after {await marked(region, ''):.2f} s")
        await under_way.sent(5)
        records = await under_way.finish()
    assert failed(records) == []
    print("weights:", before, "then", watch.seen)
    for weights in watch.seen:
        assert weights.keys() == before.keys(), "an endpoint was taken out"
        assert all(weight >= KEPT_SHARE * before[cell] for cell, weight in weights.items()), weights
    await region.no_nacks()


async def fallbacks(region: Region) -> dict[str, str]:
    """Each cell's mark."""
    return {cell: view["fallback"] for cell, view in (await region.cells()).items()}


async def marked(region: Region, mark: str) -> float:
    """Wait until the exporter's cells carry this mark; the seconds it took."""

    async def so() -> bool:
        marks = await fallbacks(region)
        return all(marks[cell] == mark for cell in OWN)

    return await region.until(so, f"{OWN} are marked {mark!r}")
