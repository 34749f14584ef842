"""The metrics that real programs export: each explained, in base units, with labels that are bounded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.monitoring.pages import Family, families, series, text
from tests.e2e.whole_path.region import Plan, Region, running_region
from tests.e2e.whole_path.traffic import load
from tests.support.monitoring import documented

FIXED = {
    *("headrace_cell_pressure", "headrace_cell_weight", "headrace_cell_state", "headrace_cell_signal"),
    *("headrace_cell_fallback", "headrace_heartbeat_age_seconds", "headrace_heartbeats_total"),
    *("headrace_transitions_total", "headrace_route_update_seconds", "headrace_xds_pushes_total"),
    *("headrace_xds_nacks_total", "headrace_gateway_requests_total"),
    *("headrace_pick_seconds", "headrace_picks_total"),
}
"""Names on which others build."""
OTHER_UNITS = re.compile(r"_(ms|us|ns|milliseconds|minutes|hours|percent|kb|mb|mib|kib|celsius)(_|$)")
TIME = re.compile(r"(age|since|duration|latency|lateness|delay|time)(_|$)")
JUNK = 40
PLAN = Plan(settings={"picker": {"enabled": True}})


@pytest.fixture
async def region(tmp_path: Path) -> AsyncIterator[Region]:
    """A region that has carried some requests."""
    async with running_region(tmp_path, PLAN) as region:
        async with load(region) as under_way:
            await under_way.sent(20)
        yield region


async def pages(region: Region) -> dict[str, str]:
    """The pages of all programs by name."""
    found = {"controller": await text(region, region.fleet.api_url)}
    for site in region.fleet.sites:
        found[f"agent {site.name}"] = await text(region, f"http://127.0.0.1:{site.agent_port}")
    return found


def check(family: Family) -> None:
    """One metric is what docs/metrics.md says, and named as others will expect."""
    assert family.help, f"{family.name} has no HELP"
    assert family.kind in ("counter", "gauge", "histogram", "info"), family.name
    if not family.name.startswith("headrace_"):
        return
    name = f"{family.name}_info" if family.kind == "info" else family.name
    assert name in documented(), f"{name} is not documented"
    assert family.labels <= documented()[name], name
    assert not OTHER_UNITS.search(name), f"{name}: seconds and bytes are the units"
    if TIME.search(name) or family.kind == "histogram":
        assert re.search(r"_(seconds(_total)?|ratio)$", name), f"{name} has no unit in its name"
    assert name.endswith("_total") == (family.kind == "counter"), name


async def send_junk(region: Region) -> None:
    """Requests as no client of ours sends them, each with words of its own."""
    for number in range(JUNK):
        url = f"{region.fleet.gateway_url}/junk-{number}"
        async with region.session.get(url, headers={"user-agent": f"junk-agent-{number}"}) as response:
            assert response.status >= 400
        body = {"model": f"junk-model-{number}", "prompt": "x"}
        async with region.session.post(f"{region.fleet.gateway_url}/v1/completions", json=body) as response:
            assert response.status == 404
        headers = {"Authorization": f"Bearer junk-{number}", "Origin": f"http://junk-{number}"}
        async with region.session.get(f"{region.fleet.api_url}/api/v1/cells", headers=headers) as response:
            assert response.status == 403


async def test_pages_are_explained_documented_and_bounded(region: Region) -> None:
    before = await pages(region)
    found = {name: families(page) for name, page in before.items()}
    for each in (family for page in found.values() for family in page):
        check(each)
    assert {each.name for each in found["controller"]} >= FIXED
    helped = before["controller"].count("# HELP headrace_cell_pressure ")
    assert helped == 1, "a family stands on the page once"
    await send_junk(region)

    async def counted() -> bool:
        page = families(await text(region, region.fleet.api_url))
        requests = next(each for each in page if each.name == "headrace_gateway_requests_total")
        unrouted = [s.value for s in requests.samples if s.labels["class"] == "unrouted"]
        return sum(unrouted) >= JUNK

    await region.until(counted, "what reached no cell is counted")
    await asyncio.sleep(0)
    after = await pages(region)
    new = series(after.values()) - series(before.values())
    assert not [page for page in after.values() if "junk" in page]
    # What happens for the first time begins a series: a word of the programs for each, not of clients.
    assert len(new) < JUNK, new
