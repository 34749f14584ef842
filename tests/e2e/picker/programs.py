"""The picker in a region of real programs: what it counts, what operators see, and work behind its back."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from headrace_lab.load.driver import CELL_HEADER
from tests.e2e.whole_path.region import PATIENCE_S, Plan, Region
from tests.support.terminal import PROGRAM

# The longest times that settings allow for a pick: the machine is busy with all the programs at once.
PICKER: dict[str, Any] = {"enabled": True, "trickle": 0.0, "timeout_s": 0.05, "slow_pick_s": 0.05}
PLAN = Plan(settings={"picker": PICKER})
LONG_PROMPT = "word " * 7000
"""About a second of work for a cell, and less than its length."""


async def headrace(region: Region, *arguments: str) -> str:
    """What an operator's command prints; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *(str(PROGRAM), *arguments, "--url", region.fleet.api_url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def sampled(region: Region, sample: str) -> float:
    """A figure of the controller's metrics page, 0 where it is not there; `sample`: its name with labels."""
    async with region.session.get(f"{region.fleet.api_url}/metrics") as response:
        text = await response.text()
    found = re.search(rf"^{re.escape(sample)} (\S+)$", text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


async def picks(region: Region, outcome: str = "named") -> float:
    """How often the picker has named a cell, or done something else."""
    return await sampled(region, f'headrace_picks_total{{outcome="{outcome}"}}')


async def picks_on(region: Region, outcome: str = "named", count: int = 10) -> None:
    """Wait for so many more picks of that outcome."""
    before = await picks(region, outcome)

    async def enough() -> bool:
        return await picks(region, outcome) >= before + count

    await region.until(enough, f"{count} more picks are {outcome}")


async def standing(region: Region) -> list[tuple[str, str]]:
    """What the event log says of the picker, oldest first: what it does, and why."""
    async with region.session.get(f"{region.fleet.api_url}/api/v1/events?limit=1000") as response:
        response.raise_for_status()
        events = (await response.json())["events"]
    found = sorted(events, key=lambda each: each["id"])
    return [(each["event"], each["cause"]) for each in found if each["kind"] == "picker"]


async def ask(region: Region, prompt: str = "hello", **more: Any) -> Mapping[str, str]:
    """The header fields of a small answer through Envoy."""
    body = {"model": region.fleet.model, "prompt": prompt, "max_tokens": 2, "stream": True, **more}
    url = f"{region.fleet.gateway_url}/v1/completions"
    async with region.session.post(url, json=body) as response:
        assert response.status == 200
        await response.read()
        return response.headers


async def who_answers(region: Region, count: int) -> set[str]:
    """The cells that answer so many requests, one after the other."""
    return {(await ask(region))[CELL_HEADER] for _ in range(count)}


@asynccontextmanager
async def long_prompts(region: Region, url: str, count: int) -> AsyncIterator[None]:
    """So many long prompts under way at once, at a cell or a gateway, until the block ends."""
    body = {"model": region.fleet.model, "prompt": LONG_PROMPT, "max_tokens": 2, "stream": True}
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)

    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def one() -> None:
            async with session.post(f"{url}/v1/completions", json=body) as response:
                await response.read()

        tasks = [asyncio.create_task(one(), name=f"long prompt {number}") for number in range(count)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def waiting(region: Region, cell: str) -> float:
    """How many requests wait at a cell, as its engine said last; 0 where it has said nothing."""
    signals = (await region.cells())[cell]["signals"]
    return float(signals.get("queue_depth") or 0.0)


async def candidates(region: Region, request: str) -> Sequence[Mapping[str, Any]]:
    """What the controller knew of each cell when it named one for a recent request."""
    async with region.session.get(f"{region.fleet.api_url}/api/v1/requests/{request}/pick") as response:
        response.raise_for_status()
        return list((await response.json())["candidates"])
