"""An operator switches the picker of a real controller off and on, and asks it why, while requests pass."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from headrace_lab.load.driver import CELL_HEADER
from tests.e2e.picker.programs import PLAN, ask, headrace, picks, picks_on, standing
from tests.e2e.whole_path.region import Region, running_region
from tests.e2e.whole_path.traffic import failed, load

OFF = "switched off by an operator"


async def shares(region: Region, count: int) -> dict[str, float]:
    """What part of so many requests, one after the other, each cell answers."""
    found = Counter([(await ask(region))[CELL_HEADER] for _ in range(count)])
    return {cell: number / count for cell, number in found.items()}


async def test_switched_off_requests_go_by_the_weights_and_that_outlives_a_restart(tmp_path: Path) -> None:
    async with running_region(tmp_path, PLAN) as region, load(region) as under_way:
        await picks_on(region)
        assert (await headrace(region, "picker", "status")).startswith("names cells\n")
        assert await headrace(region, "picker", "off", "--cause", "to compare") == "picker off\n"
        await picks_on(region, "off")
        named = await picks(region)
        await picks_on(region, "off")
        assert await picks(region) == named
        status = await headrace(region, "picker", "status")
        assert status.startswith(f"names no cell: {OFF}\n")
        assert [line.split() for line in status.splitlines() if line.startswith("named")] == [
            ["named", f"{named:.0f}"]
        ]
        await region.kill("controller")
        await region.restart("controller")
        await region.serving()
        await picks_on(region, "off")
        assert await picks(region) == 0
        assert await headrace(region, "picker", "on") == "picker on\n"
        await picks_on(region)
        assert (await headrace(region, "picker")).startswith("names cells\n")
        assert [what for what, _ in await standing(region)][-2:] == ["names no cell", "names cells"]
        assert failed(await under_way.finish()) == []
        await region.no_nacks()


async def test_switched_off_each_cell_gets_what_its_weight_says(tmp_path: Path) -> None:
    async with running_region(tmp_path, PLAN) as region:
        await headrace(region, "override", "west-1", "90", "--cause", "to tell weights from picks")
        await headrace(region, "override", "east-1", "5")
        await headrace(region, "override", "east-2", "5")
        await headrace(region, "picker", "off")

        async def heavy() -> bool:
            return await region.weights() == {"west-1": 90, "east-1": 5, "east-2": 5}

        await region.until(heavy, "Envoy holds the weights")
        off = await shares(region, 40)
        assert off["west-1"] >= 0.8
        assert (await picks(region), await picks(region, "off")) == (0, 40)
        await headrace(region, "override", "west-1", "--clear")
        await headrace(region, "override", "east-1", "--clear")
        await headrace(region, "override", "east-2", "--clear")
        await headrace(region, "picker", "on")
        await ask(region)
        assert await picks(region) >= 1


async def test_the_operators_command_tells_why_a_request_went_where_it_went(tmp_path: Path) -> None:
    async with running_region(tmp_path, PLAN) as region:
        fields = await ask(region, user="somebody")
        request, cell = fields["x-request-id"], fields[CELL_HEADER]

        async def served() -> bool:
            return f"served by {cell}" in await headrace(region, "explain", "--request", request)

        await region.until(served, "the picker has heard of the answer")
        told = await headrace(region, "explain", "--request", request)
        assert told.startswith(f"{request} at gw-1")
        assert "session somebody: named" in told
        (named,) = (line.split() for line in told.splitlines() if line.split()[:1] == ["1"])
        assert named[1] == cell
        assert {line.split()[1] for line in told.splitlines() if line.endswith("yes")} == {
            each.id for each in region.fleet.cells
        }
