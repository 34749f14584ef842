"""The guard of a real controller's picker: everybody is told when it acts, and when the picker is back."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from tests.e2e.picker import slow_picks
from tests.e2e.picker.programs import PLAN, ask, headrace, picks, picks_on, sampled, standing
from tests.e2e.whole_path.region import Region, running_region
from tests.e2e.whole_path.traffic import failed, load

SLOW = "picks took longer than"


async def with_slow_picks(region: Region) -> None:
    """Put the controller with the planted fault in the place of the one that runs."""
    spec = region.program("controller").spec
    program = (sys.executable, "-P", str(slow_picks.__file__))
    arguments = spec.command[spec.command.index("run") :]
    await region.sigterm("controller")
    region._specs["controller"] = replace(spec, command=(*program, *arguments))
    await region.restart("controller")
    await region.serving()


async def test_the_event_log_tells_of_a_picker_that_stands_aside_and_is_back(tmp_path: Path) -> None:
    async with running_region(tmp_path, PLAN) as region:
        await with_slow_picks(region)
        async with load(region, rps=40.0) as under_way:

            async def stands_aside() -> bool:
                return any(SLOW in why for _, why in await standing(region))

            await region.until(stands_aside, "the event log says that the picker stands aside", 120.0)
            assert await sampled(region, 'headrace_picker_rests_total{reason="slow"}') == 1
            named = await picks(region)
            await picks_on(region, "resting")
            status = await headrace(region, "picker", "status")
            if status.startswith("names no cell"):
                # On a busy machine the rest may be over by now.
                assert SLOW in status.splitlines()[0]

            async def names_again() -> bool:
                # The event comes with the next scores, the pick and the gauge at once.
                back = (await standing(region))[-1] == ("names cells", "")
                return back and await picks(region) > named

            await region.until(names_again, "the picker names cells again")
            assert await sampled(region, "headrace_picker_naming") == 1
            told = await standing(region)
            assert [what for what, _ in told[-2:]] == ["names no cell", "names cells"]
            assert (SLOW in told[-2][1], told[-1][1]) == (True, "")
            events = await headrace(region, "events")
            assert "names no cell" in events
            assert SLOW in " ".join(events.split())
            assert failed(await under_way.finish()) == []
        assert (await ask(region))["x-request-id"]
