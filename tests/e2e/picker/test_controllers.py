"""What a picker has not sent itself: work of others, of a controller before it, of a second controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from headrace_lab.demo import programs as demo
from headrace_lab.demo import settings_files
from headrace_lab.demo.fleet import middle
from headrace_lab.stack.ports import free_ports
from headrace_lab.stack.program import Spec, console_script
from headrace_lab.stack.stack import Stack
from tests.e2e.picker.programs import (
    PLAN,
    ask,
    candidates,
    headrace,
    long_prompts,
    picks,
    waiting,
    who_answers,
)
from tests.e2e.whole_path.region import Region, check_ends, controller_settings, running_region

PROMPTS = 100
"""Under way at once: more than a minute of work for one cell."""


async def queues_at(region: Region, cell: str) -> None:
    """Wait until an engine says that many wait there."""

    async def many() -> bool:
        return await waiting(region, cell) >= PROMPTS / 4

    await region.until(many, f"many wait at {cell}")


async def known_work(region: Region) -> dict[str, float]:
    """What the picker reckons each cell has to compute before a request that it is asked for now."""
    request = (await ask(region))["x-request-id"]
    return {each["cell"]: float(each["work_tokens"]) for each in await candidates(region, request)}


async def named(region: Region) -> bool:
    """Whether the picker has named a cell. Until Envoy asks it, a request may wait at the full one."""
    with suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await ask(region)
    return await picks(region) > 0


async def test_a_controller_that_starts_anew_knows_the_work_by_the_engines_figures(tmp_path: Path) -> None:
    """Its book is empty, and the engines are full."""
    async with running_region(tmp_path, PLAN) as region:
        url = region.fleet.cell("east-1").url
        async with long_prompts(region, url, PROMPTS):
            await queues_at(region, "east-1")
            await region.kill("controller")
            await region.restart("controller")
            await region.serving()
            await queues_at(region, "east-1")
            await region.until(lambda: named(region), "the new picker is asked")

            async def known() -> bool:
                work = await known_work(region)
                return work["east-1"] > 10 * max(work["east-2"], work["west-1"])

            # Pages may be late on a machine that is busy.
            await region.until(known, "the new picker knows of the queue")
            assert await who_answers(region, 20) == {"east-2", "west-1"}
            assert await picks(region) >= 21

        async def all_answer() -> bool:
            return "east-1" in await who_answers(region, 6)

        await region.until(all_answer, "the cell is named again once its queue is gone")


async def test_a_picker_sees_what_another_controllers_requests_do_to_a_cell(tmp_path: Path) -> None:
    """The first controller may send to one site only; the second shares nothing with it but the engines."""
    first_dir, second_dir = tmp_path / "first", tmp_path / "second"
    first_dir.mkdir()
    second_dir.mkdir()
    async with running_region(first_dir, PLAN) as first, second_controller(first, second_dir) as other:
        await headrace(first, "pin", first.fleet.model, "west", "--cause", "to fill it")

        async def pinned() -> bool:
            return set(await first.weights()) == {"west-1"}

        await first.until(pinned, "the first Envoy holds one site")
        async with long_prompts(first, first.fleet.gateway_url, PROMPTS):
            await queues_at(other, "west-1")

            async def known() -> bool:
                work = await known_work(other)
                return work["west-1"] > 10 * max(work["east-1"], work["east-2"])

            await other.until(known, "the other picker knows of the queue")
            assert await who_answers(other, 20) == {"east-1", "east-2"}
        # Those who left leave nothing behind in the book of the one that had sent them.
        await first.until(lambda: nothing_open(first), "the first picker's book is empty")
        assert await picks(first) >= PROMPTS


async def nothing_open(region: Region) -> bool:
    """Whether no request waits for its first token, as the picker thinks."""
    status = await headrace(region, "picker", "status")
    return "\n0 requests wait for their first token" in status


@asynccontextmanager
async def second_controller(region: Region, directory: Path) -> AsyncIterator[Region]:
    """A second controller with an Envoy of its own, over the same cells, once it serves all of them."""
    ports = iter(free_ports(len(region.fleet.sites)))
    sites = tuple(replace(site, agent_port=next(ports)) for site in region.fleet.sites)
    fleet = replace(region.fleet, sites=sites, ports=middle())
    async with Stack(directory) as stack:
        other = Region(fleet, stack, region.session)
        told = controller_settings(fleet, directory) | dict(PLAN.settings)
        path = settings_files.write(directory / "controller.yaml", told)
        envoy = asyncio.create_task(demo.envoy(fleet, directory), name="bootstrap")
        run = (console_script("headrace-controller"), "run", "--config", str(path))
        used = (fleet.ports.telemetry, fleet.ports.xds, fleet.ports.api)
        await other.start(Spec("controller", run, used, f"{fleet.api_url}/healthz", grace_s=10.0))
        await other.start(*(demo.agent(fleet, site, directory) for site in fleet.sites))
        await other.start(await envoy)
        await stack.wait_ready()
        await other.serving()
        yield other
        check_ends(await stack.stop())
