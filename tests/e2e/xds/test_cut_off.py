"""Answers that are cut off: who waits for the rest hears of it soon."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from headrace_controller.settings import EnvoySettings
from tests.e2e.xds.cells import CuttingCell, running_cells
from tests.e2e.xds.stack import running_stack

SETTINGS = EnvoySettings(health_checks=False)
LATE_S = 6.0
BEGUN = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    b"9\r\ndata: 0\n\n\r\n"
)


async def until_told(tmp_path: Path, settings: EnvoySettings) -> float:
    """How long a client waits whose engine dies in the middle of its answer, s."""
    cell, loop = CuttingCell("cut", BEGUN), asyncio.get_running_loop()
    async with running_cells(cell), running_stack(tmp_path, {"m": {cell: 1}}, settings) as stack:
        began = loop.time()
        with pytest.raises(aiohttp.ClientPayloadError):
            async with asyncio.timeout(20 + LATE_S):
                await stack.ask(stream=True)
        return loop.time() - began


async def test_a_client_whose_engine_died_need_not_wait_for_it(tmp_path: Path) -> None:
    late = await until_told(tmp_path, SETTINGS.model_copy(update={"delayed_close_s": LATE_S}))
    soon = await until_told(tmp_path, SETTINGS)
    assert late > LATE_S * 0.9
    assert soon < late / 2
