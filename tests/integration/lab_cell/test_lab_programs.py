"""Cells and exporters as programs: they end in time, and say what is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from headrace_lab.cell.listening import address_of, bind
from headrace_lab.stack.ports import free_ports
from tests.support.nodelay import goes_at_once
from tests.support.program import EXIT_LIMIT_S

CELL = ("headrace_lab.cell", "--max-model-len", "1024", "--decode-ms", "20")
EXPORTER = ("headrace_lab.gpu", "--gpu", "GPU-1=http://127.0.0.1:9")


@asynccontextmanager
async def program(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        async with asyncio.timeout(30):
            await process.communicate()


async def port_of(process: asyncio.subprocess.Process) -> int:
    """The port that a program started with `--port 0` says it serves on."""
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while line := await process.stderr.readline():
            said = json.loads(line)
            if said["event"] == "serving":
                return int(said["address"].rpartition(":")[2])
    raise AssertionError("the program ended before it served")


async def ended(process: asyncio.subprocess.Process) -> tuple[int, float]:
    """Exit status and the seconds until it came."""
    started = time.monotonic()
    async with asyncio.timeout(30):
        status = await process.wait()
    return status, time.monotonic() - started


@pytest.mark.parametrize("hang", [False, True])
async def test_sigterm_ends_a_cell_in_time_even_with_streams_open(
    session: aiohttp.ClientSession, hang: bool
) -> None:
    async with program(*CELL, "--port", "0") as process:
        url = f"http://127.0.0.1:{await port_of(process)}"
        body = {"prompt": "hello", "max_tokens": 900, "stream": True}
        async with session.post(f"{url}/v1/completions", json=body) as response:
            assert (await response.content.readline()).startswith(b"data: ")
            if hang:
                async with session.post(f"{url}/lab/faults", json={"fault": "hang"}) as done:
                    assert done.status == 200
            process.send_signal(signal.SIGTERM)
            status, seconds = await ended(process)
    assert status == 0
    assert seconds < EXIT_LIMIT_S


async def test_sigkill_closes_its_sockets_at_once(session: aiohttp.ClientSession) -> None:
    # A port of the system's choice could be another's, or the client's own, by the end.
    (chosen,) = free_ports(1)
    async with program(*CELL, "--port", str(chosen)) as process:
        port = await port_of(process)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        process.kill()
        # A connection that was not accepted yet is reset, which is an end as well.
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(30):
                assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()
        # The kernel may end the connection a moment before the socket that listens.
        async with asyncio.timeout(30):
            while await _listens(port):  # noqa: ASYNC110 (the kernel's doing)
                await asyncio.sleep(0.01)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return False
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return True


async def test_the_exit_fault_ends_it_with_status_1(session: aiohttp.ClientSession) -> None:
    async with program(*CELL, "--port", "0") as process:
        port = await port_of(process)
        url = f"http://127.0.0.1:{port}/lab/faults"
        async with session.post(url, json={"fault": "exit"}) as response:
            assert response.status == 200
        status, _ = await ended(process)
    assert status == 1


async def test_sigterm_ends_an_exporter_in_time(session: aiohttp.ClientSession) -> None:
    async with program(*EXPORTER, "--port", "0") as process:
        port = await port_of(process)
        async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
            assert "DCGM_FI_DEV_GPU_UTIL" in await response.text()
        process.send_signal(signal.SIGTERM)
        status, seconds = await ended(process)
    assert status == 0
    assert seconds < EXIT_LIMIT_S


@pytest.mark.parametrize("arguments", [CELL, EXPORTER], ids=["cell", "exporter"])
async def test_a_port_in_use_is_said_and_ends_with_status_2(arguments: tuple[str, ...]) -> None:
    holder = bind("127.0.0.1", 0)
    holder.listen()
    try:
        async with program(*arguments, "--port", str(address_of(holder).port)) as process:
            assert process.stderr is not None
            said = (await process.stderr.read()).decode()
            status, _ = await ended(process)
    finally:
        holder.close()
    assert status == 2
    assert "already in use" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*CELL, "--speed", "0"), "speed is 0"),
        ((*CELL, "--engine-version", "new"), "engine version 'new'"),
        ((*CELL, "--loading-mode", "sulk"), "--loading-mode is 'sulk'"),
        (("headrace_lab.gpu", "--gpu", "GPU-1"), "UUID=http://host:port"),
    ],
)
async def test_bad_options_are_said_and_end_with_status_2(arguments: tuple[str, ...], words: str) -> None:
    async with program(*arguments) as process:
        assert process.stderr is not None
        said = (await process.stderr.read()).decode()
        status, _ = await ended(process)
    assert status == 2
    assert words in said
    assert "Traceback" not in said


async def test_tokens_go_at_once() -> None:
    """As those of engines do."""
    with bind("127.0.0.1", 0) as listener:
        listener.listen()
        assert await goes_at_once(listener)
