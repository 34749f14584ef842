"""Cells and exporters in this process, on loopback ports that the system chooses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from headrace_lab.cell.listening import address_of, bind
from headrace_lab.cell.service import serve as serve_cell
from headrace_lab.cell.settings import CellSettings
from headrace_lab.engine import EngineParameters
from headrace_lab.gpu.service import serve as serve_exporter
from headrace_lab.gpu.settings import ExporterSettings
from headrace_shared.clock import SystemClock

QUICK = EngineParameters(decode_base_s=0.002, prefill_tokens_per_s=1e6, max_model_len=1024)
"""Fast enough for tests, slow enough to be caught in the act."""


@dataclass(frozen=True)
class Server:
    """A server under test."""

    url: str
    port: int


@asynccontextmanager
async def running(
    serve: Callable[[socket.socket, asyncio.Event], Awaitable[None]], *, listens: bool = True
) -> AsyncIterator[Server]:
    """A server, once it listens unless it is not to at first."""
    sock = bind("127.0.0.1", 0)
    port = address_of(sock).port
    stop = asyncio.Event()
    task = asyncio.create_task(_await(serve(sock, stop)), name="server under test")

    async def does_listen() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return False
        writer.close()
        await writer.wait_closed()
        return True

    try:
        if listens:
            await eventually(does_listen)
        yield Server(f"http://127.0.0.1:{port}", port)
    finally:
        stop.set()
        async with asyncio.timeout(20):
            await task


async def _await(awaitable: Awaitable[None]) -> None:
    await awaitable


@asynccontextmanager
async def running_cell(**settings: Any) -> AsyncIterator[Server]:
    made = CellSettings(**{"cell_id": "c1", "model": "m", "engine": QUICK, **settings})
    listens = made.loading_mode == "answer"
    async with running(
        lambda sock, stop: serve_cell(made, sock, SystemClock(), stop), listens=listens
    ) as server:
        yield server


@asynccontextmanager
async def running_exporter(settings: ExporterSettings) -> AsyncIterator[Server]:
    async with running(lambda sock, stop: serve_exporter(settings, sock, SystemClock(), stop)) as server:
        yield server


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield session


@pytest.fixture
async def cell() -> AsyncIterator[Server]:
    async with running_cell() as server:
        yield server


async def eventually(check: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    """Return as soon as `check` holds; fail if it does not within `seconds`."""
    async with asyncio.timeout(seconds):
        while True:
            if await check():
                return
            await asyncio.sleep(0.02)
