"""`headrace-controller run --baseline`: a plain Envoy, to compare with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.whole_path.region import Plan, Region, running_region
from tests.e2e.whole_path.traffic import failed, load

CELLS = ("east-1", "east-2", "east-3")
POLICIES = {"rr": "round_robin", "lr": "least_request"}


@pytest.mark.parametrize("baseline", ["rr", "lr"])
async def test_a_plain_envoy_keeps_a_dead_engine_and_equal_weights(tmp_path: Path, baseline: str) -> None:
    plan = Plan({"east": CELLS}, exporters=False, baseline=baseline)
    async with running_region(tmp_path, plan) as region:
        assert await policies(region) == {POLICIES[baseline]}
        async with load(region) as under_way:
            await under_way.sent(15)
            for cell in CELLS:
                await under_way.reaches(cell)
            assert failed(under_way.records) == []
            await region.kill("cell east-2")
            print(f"health checks took {await marked_unhealthy(region, 'east-2'):.1f} s")
            since = under_way.now_s
            assert await region.state("east-2") == "FAILED"
            assert await region.weights() == dict.fromkeys(CELLS, 1)
            await under_way.sent(15)
            assert await region.weights() == dict.fromkeys(CELLS, 1)
            records = await under_way.finish()
        after = [r for r in records if r.sent_s > since]
        assert failed(after) == []
        assert {r.cell for r in after} == {"east-1", "east-3"}
        assert (await region.view())["baseline"] == baseline
        assert {v["weights"]["gw-1"] for v in (await region.cells()).values()} == {1}
        await region.no_nacks()


async def policies(region: Region) -> set[str]:
    """The balancing policies of the clusters that the controller gave to Envoy."""
    url = f"{region.fleet.gateway_admin_url}/config_dump?resource=dynamic_active_clusters"
    async with region.session.get(url) as response:
        dump = await response.json(content_type=None)
    clusters = [each["cluster"] for each in dump["configs"]]
    assert [each["name"] for each in clusters] == ["pool/demo"]
    chosen = [p["typed_extension_config"]["name"] for p in clusters[0]["load_balancing_policy"]["policies"]]
    return {name.rpartition(".")[2] for name in chosen}


async def marked_unhealthy(region: Region, cell: str) -> float:
    """Wait until Envoy's own health checks have failed the cell; the seconds it took."""

    async def so() -> bool:
        return not (await region.hosts())[cell].healthy

    return await region.until(so, f"Envoy marks {cell} as unhealthy")
