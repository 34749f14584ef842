"""Least request in a real Envoy, and as the simulator has it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web

from headrace_lab.load.arrivals import Arrival
from headrace_lab.sim.choosers import LeastRequest
from headrace_lab.sim.jobs import Job
from tests.e2e.xds.cells import Cell, running_cells
from tests.e2e.xds.stack import PATIENCE_S, Stack, running_stack, until

HELD = 4
"""Over three cells: they cannot all have as many."""
ASKED = 500


class HoldingCell(Cell):
    """Keeps requests that ask for it until `release`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.held = 0
        self.release = asyncio.Event()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        if (await request.json()).get("hold"):
            self.held += 1
            await self.release.wait()
        return await super()._complete(request)


def modelled(active: dict[str, int], picks: int = 20_000) -> dict[str, float]:
    """Shares of the simulator's picks while so many requests are open."""
    chooser = LeastRequest(1, active)
    chooser.update(dict.fromkeys(active, 1), 0.0)
    request = Job(Arrival(1, 0.0, "short", 100, 10), 0.0, 500)
    found = Counter(chooser.choose(request, 0.0) for _ in range(picks))
    return {name: found[name] / picks for name in active}


async def hold(stack: Stack, cells: list[HoldingCell]) -> list[asyncio.Task[object]]:
    """Requests that stay open, each sent when Envoy has placed the one before."""
    tasks: list[asyncio.Task[object]] = []
    for number in range(HELD):
        tasks.append(asyncio.create_task(stack.ask(hold=True), name=f"held {number}"))
        await until(lambda: sum(cell.held for cell in cells) == len(tasks), PATIENCE_S)
    return tasks


async def test_equal_weights_take_the_less_busy_of_two_as_the_simulator_has_it(tmp_path: Path) -> None:
    cells = [HoldingCell(name) for name in "abc"]
    told = {"m": dict.fromkeys(cells, 1)}
    async with running_cells(*cells), running_stack(tmp_path, told, baseline="lr") as stack:
        tasks = await hold(stack, cells)
        try:
            seen = Counter([(await stack.ask()).body["cell"] for _ in range(ASKED)])
        finally:
            for cell in cells:
                cell.release.set()
            await asyncio.gather(*tasks)
    expected = modelled({cell.name: cell.held for cell in cells})
    found = {name: seen[name] / ASKED for name in expected}
    # Four deviations of the mean of so many draws.
    assert found == pytest.approx(expected, abs=0.09)
    assert max(abs(share - 1 / 3) for share in expected.values()) > 0.2, "turns would be seen to differ"
