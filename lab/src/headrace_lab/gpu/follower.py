"""Follows the load of a cell over HTTP, and tells it how slow its GPU is."""

from __future__ import annotations

import json
import math
from typing import Any

import aiohttp

from headrace_lab.gpu.model import GpuLoad

TIMEOUT_S = 1.0
MAX_BYTES = 64 * 1024


def parse_load(raw: bytes) -> GpuLoad:
    """Read a cell's /lab/load. Raises ValueError for anything that is not one."""
    try:
        body: Any = json.loads(raw)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(body, dict):
        raise ValueError("not a JSON object")
    loading = body.get("loading") is True
    return GpuLoad(
        busy=_share(body, "busy"),
        tensor=_share(body, "tensor"),
        bandwidth=_share(body, "bandwidth"),
        kv_fill=_share(body, "kv_fill"),
        present=not loading,
    )


def _share(body: dict[str, Any], name: str) -> float:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}, not a number")
    return min(1.0, max(0.0, float(value)))


async def read_load(session: aiohttp.ClientSession, cell_url: str) -> GpuLoad:
    """The load of the cell at `cell_url` now; an idle, empty GPU if it does not answer properly."""
    try:
        async with session.get(
            f"{cell_url}/lab/load", timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)
        ) as response:
            size = response.content_length
            if response.status != 200 or size is None or size > MAX_BYTES:
                return GpuLoad()
            return parse_load(await response.read())
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return GpuLoad()


async def slow_down(session: aiohttp.ClientSession, cell_url: str, factor: float) -> bool:
    """Tell the cell that its GPU makes each step take `factor` times as long; True if it took it."""
    try:
        async with session.post(
            f"{cell_url}/lab/faults",
            json={"fault": "slow", "factor": factor},
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        ) as response:
            return response.status == 200
    except (TimeoutError, aiohttp.ClientError, OSError):
        return False
