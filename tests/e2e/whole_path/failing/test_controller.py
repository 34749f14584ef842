"""The controller is killed under load and started again over the fleet that it kept."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.whole_path.region import Region
from tests.e2e.whole_path.traffic import failed, load, watching

pytestmark = pytest.mark.asyncio(loop_scope="package")

AWAY_S = 2.0
KEPT_AFTER_S = 3.0
"""The controller writes down what it holds once a second, and on a busy machine a little later."""


async def test_a_controller_that_dies_and_returns_moves_no_traffic(region: Region) -> None:
    async with load(region) as under_way:
        await under_way.sent(20)
        kept = await region.settled(KEPT_AFTER_S)
        async with watching(region) as watch:
            await region.kill("controller")
            at = under_way.now_s
            await asyncio.sleep(AWAY_S)
            await region.restart("controller")
            print(f"published {await published(region):.2f} s after it answered")
            as_published = list(watch.seen)
            print(f"all agents heard after {await region.serving():.2f} s more")
            cells = await region.cells()
        await under_way.sent(20)
        records = await under_way.finish()
    assert failed(records) == []
    assert sum(r.sent_s >= at for r in records) >= 20
    assert as_published == [kept]
    assert len(set(kept.values())) > 1, "equal weights would prove nothing"
    # From then on the load itself may move a weight a little; a cell that begins anew would move at once.
    for weights in (*watch.seen, {cell: view["weights"]["gw-1"] for cell, view in cells.items()}):
        assert weights.keys() == kept.keys(), watch.seen
        assert all(0.6 < weight / kept[cell] < 1.7 for cell, weight in weights.items()), watch.seen
    assert {view["state"] for view in cells.values()} == {"READY"}
    await region.no_nacks()


async def published(region: Region) -> float:
    """Wait until the controller has published to an Envoy that is back; the seconds it took."""

    async def done() -> bool:
        view = await region.view()
        return bool(view["published"] and view["gateways"][0]["connected"])

    return await region.until(done, "the controller publishes")
