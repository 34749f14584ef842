"""A region that lives: a controller's inside with four cells that are heard twice a second, and its API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp.test_utils import TestServer

from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.control.region import Region

TICK_S = 0.05
BEAT_EVERY = 4
CELLS = {"berlin-1": ("n1", "berlin"), "berlin-2": ("n1", "berlin"), "paris-1": ("n2", "paris")}
LOADS = {"berlin-1": 2, "berlin-2": 12, "paris-1": 4}


@asynccontextmanager
async def living(directory: Path) -> AsyncIterator[str]:
    """The address of its API."""
    region = Region(f"state_dir: {directory}\n")
    for node in ("n1", "n2"):
        cells = [cell for cell, (its, _) in CELLS.items() if its == node]
        region.connect(*cells, node=node, site=CELLS[cells[0]][1])
    region.tick()
    _beat(region)
    region.tick()
    async with TestServer(region.desk.app) as server:
        life = asyncio.create_task(_live(region), name="the region's life")
        try:
            yield str(server.make_url("")).rstrip("/")
        finally:
            life.cancel()
            await asyncio.wait([life])
    region.close()


def _beat(region: Region) -> None:
    for cell, load in LOADS.items():
        signals = pb.Signals(
            queue_depth=load, ttft_p95_s=load / 10, kv_fill=load / 20, compute_active=0.02, gpu_util=0.03
        )
        region.beat(cell, node=CELLS[cell][0], signals=signals, in_flight=0)


async def _live(region: Region) -> None:
    """Ticks and heartbeats, until it is cancelled."""
    while True:
        for _ in range(BEAT_EVERY):
            await asyncio.sleep(TICK_S)
            region.tick(TICK_S)
        _beat(region)
