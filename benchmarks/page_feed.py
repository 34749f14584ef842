"""What viewers of the page cost a controller: its CPU a second with so many of them, less that with none.

The control loop, the feed and its streams are the real ones, in a process of their own; every cell's figures
move once a second. Viewers read the stream as the page does and draw nothing.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import psutil

from benchmarks.result import json_path, report

SEED = 1
ROOT = Path(__file__).parents[1]
CELLS = (100, 1000, 10_000)
VIEWERS = (1, 8)
TICK_S = 1.0
WATCH_S = 15.0
SETTLE_S = 3.0
START_S = 60


@contextmanager
def served(cells: int) -> Iterator[tuple[str, psutil.Process]]:
    """A region of so many cells: its address, and its process."""
    command = [sys.executable, "-m", "tests.e2e.page.fake_region", "--cells", str(cells)]
    process = subprocess.Popen(
        [*command, "--tick-s", str(TICK_S)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait(START_S)


async def view(session: aiohttp.ClientSession, url: str) -> None:
    """Read the stream, without end."""
    async with session.get(f"{url}/api/v1/live") as answer:
        async for _ in answer.content.iter_any():
            pass


async def spent(process: psutil.Process) -> float:
    """The process's CPU, ms a second."""
    await asyncio.sleep(SETTLE_S)
    before = process.cpu_times()
    await asyncio.sleep(WATCH_S)
    after = process.cpu_times()
    return 1000 * (after.user + after.system - before.user - before.system) / WATCH_S


async def watched(process: psutil.Process, url: str, viewers: int) -> float:
    """The process's CPU with so many viewers, ms a second."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout()) as session:
        tasks = [asyncio.create_task(view(session, url), name="viewer") for _ in range(viewers)]
        try:
            return await spent(process)
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def measured(cells: int) -> dict[str, float]:
    """The figures at so many cells. What the region costs by itself is taken before and after, in turn."""
    with served(cells) as (url, process):
        await spent(process)  # what the start has left behind
        before = await spent(process)
        seen = {viewers: await watched(process, url, viewers) for viewers in VIEWERS}
        alone = (before + await spent(process)) / 2
    figures = {f"cells_{cells}_without_ms_a_second": alone}
    return figures | {f"cells_{cells}_viewers_{n}_ms_a_second": cpu - alone for n, cpu in seen.items()}


async def measure() -> dict[str, float]:
    """All figures."""
    figures: dict[str, float] = {}
    for cells in CELLS:
        figures |= await measured(cells)
    return figures


def main() -> None:
    """Measure, print, and write what was asked for."""
    path = json_path(__doc__ or "")
    report("page_feed", SEED, asyncio.run(measure()), path)


if __name__ == "__main__":
    main()
