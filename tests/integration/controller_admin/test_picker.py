"""The picker as operators see it and switch it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from headrace_controller.admin.desk import Desk, Memory
from headrace_controller.control.picking import Picking
from headrace_controller.picker.requests import Ask, Outcome
from tests.integration.controller_admin.client import Client, ask
from tests.integration.controller_admin.conftest import populated
from tests.unit.controller.control.region import Region

SETTINGS = "picker: {enabled: true, trickle: 0}\nstate_dir: "


def with_picker(directory: Path) -> tuple[Region, Picking]:
    """A region whose controller has a picker, and the pages to it."""
    region = populated(f"{SETTINGS}{directory}\n")
    picking = Picking(region.settings, region.clock, region.loop.fleet, CollectorRegistry())
    region.loop.witnesses.append(picking.feed)
    memory = Memory(region.settings, region.metrics)
    region.desk = Desk(
        region.settings, region.clock, region.loop, region.xds, region.metrics, memory, (), picking.feed
    )
    region.beat("c1")
    region.tick(0.3)
    return region, picking


@pytest.fixture
async def picked(tmp_path: Path) -> AsyncIterator[tuple[Client, Region, Picking]]:
    region, picking = with_picker(tmp_path)
    async with TestClient(TestServer(region.desk.app)) as client:
        yield client, region, picking
    region.close()


async def test_it_says_how_it_does(picked: tuple[Client, Region, Picking]) -> None:
    client, _, picking = picked
    picking.service._hooks.on_pick(Outcome.NAMED, 0.001)
    status, found = await ask(client, "GET", "/api/v1/picker")
    assert status == 200
    assert (found["enabled"], found["on"], found["naming"], found["said"]) == (True, True, True, "")
    assert found["picks"] == {"named": 1}
    assert found["prediction_error"] is None


async def test_an_operator_switches_it_off_and_that_outlives_a_restart(
    picked: tuple[Client, Region, Picking], tmp_path: Path
) -> None:
    client, region, picking = picked
    status, told = await ask(client, "POST", "/api/v1/picker", {"on": False, "cause": "to compare"})
    assert (status, told["kept"]) == (200, True)
    assert picking.picker.pick("gw-1", Ask("r", "m"), region.clock.now()).outcome is Outcome.OFF
    _, found = await ask(client, "GET", "/api/v1/picker")
    assert (found["on"], found["said"]) == (False, "switched off by an operator")
    _, intents = await ask(client, "GET", "/api/v1/intents")
    assert [each["kind"] for each in intents["intents"]] == ["picker off"]
    again, fresh = with_picker(tmp_path)
    assert fresh.picker.pick("gw-1", Ask("r", "m"), again.clock.now()).outcome is Outcome.OFF
    again.close()
    await ask(client, "POST", "/api/v1/picker", {"on": True})
    assert picking.picker.pick("gw-1", Ask("r", "m"), region.clock.now()).outcome is Outcome.NAMED


async def test_a_recent_pick_is_explained(picked: tuple[Client, Region, Picking]) -> None:
    client, region, picking = picked
    now = region.clock.now()
    asked = Ask("abc-1", "m", size=4000, routed_length=0, session="s")
    pick = picking.picker.pick("gw-1", asked, now)
    picking.picker.answered("abc-1", now + 0.25, pick.addresses[0])
    status, found = await ask(client, "GET", "/api/v1/requests/abc-1/pick")
    assert status == 200
    assert (found["outcome"], found["served_by"], found["as_named"]) == ("named", pick.cells[0], True)
    assert found["observed_s"] == pytest.approx(0.25)
    assert found["candidates_total"] == len(found["candidates"])
    assert [each["cell"] for each in found["candidates"] if each["named"] == 1] == [pick.cells[0]]
    status, error = await ask(client, "GET", "/api/v1/requests/nobody/pick")
    assert status == 404
    assert "x-request-id" in error["error"]


async def test_without_a_picker_the_pages_say_so(client: Client) -> None:
    _, found = await ask(client, "GET", "/api/v1/picker")
    assert (found["enabled"], found["naming"]) == (False, False)
    status, error = await ask(client, "POST", "/api/v1/picker", {"on": True})
    assert status == 409
    assert "picker.enabled" in error["error"]
    assert (await ask(client, "GET", "/api/v1/requests/x/pick"))[0] == 404
