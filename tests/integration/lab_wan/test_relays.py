"""The relays as a program: late, changed while they run, cut off, and ended. No root is needed."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from headrace_lab.stack.ports import free_ports
from headrace_lab.stack.program import console_script
from headrace_shared.clock import SystemClock
from tests.support.program import process_of

DELAY_MS = 60.0
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_clock = SystemClock()


def write(file: Path, port: int, target: int, **path: Any) -> None:
    links = [{"listen": f"127.0.0.1:{port}", "target": f"127.0.0.1:{target}"}]
    file.write_text(json.dumps({"links": links, "path": {"delay_ms": DELAY_MS} | path}))


@asynccontextmanager
async def echoing() -> AsyncIterator[int]:
    """A server that answers each line with itself."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def connected(port: int) -> Ends:
    async with asyncio.timeout(20):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)


async def round_trip(ends: Ends) -> float:
    """Seconds from a line to its echo."""
    began = _clock.now()
    ends[1].write(b"hello\n")
    async with asyncio.timeout(20):
        assert await ends[0].readline() == b"hello\n"
    return _clock.now() - began


async def test_what_goes_through_is_late_and_as_late_as_the_path_of_the_moment(tmp_path: Path) -> None:
    file, (port,) = tmp_path / "relay.yaml", free_ports(1)
    async with echoing() as target:
        write(file, port, target)
        async with process_of(console_script("headrace-lab"), "relay", str(file)) as relay:
            ends = await connected(port)
            # A connection's first bytes wait for its handshake too.
            assert await round_trip(ends) >= 4 * DELAY_MS / 1000
            assert await round_trip(ends) >= 2 * DELAY_MS / 1000
            write(file, port, target, delay_ms=150)
            relay.process.send_signal(signal.SIGHUP)
            await relay.logged(event="path set")
            assert await round_trip(ends) >= 0.3
            write(file, port + 1, target)
            relay.process.send_signal(signal.SIGHUP)
            await relay.logged(event="path kept: only path can change while running")
            ends[1].close()
            code, _ = await relay.terminate()
    assert code == 0
    assert relay.other == []


async def test_a_path_that_is_down_holds_what_is_sent_until_it_is_back(tmp_path: Path) -> None:
    file, (port,) = tmp_path / "relay.yaml", free_ports(1)
    async with echoing() as target:
        write(file, port, target)
        async with process_of(console_script("headrace-lab"), "relay", str(file)) as relay:
            ends = await connected(port)
            await round_trip(ends)
            write(file, port, target, down=True)
            relay.process.send_signal(signal.SIGHUP)
            await relay.logged(event="path set", level="info")
            ends[1].write(b"held\n")
            waiting = asyncio.create_task(ends[0].readline())
            await asyncio.sleep(3 * DELAY_MS / 1000)
            assert not waiting.done()
            write(file, port, target, delay_ms=1)
            relay.process.send_signal(signal.SIGHUP)
            async with asyncio.timeout(20):
                assert await waiting == b"held\n"
            ends[1].close()


async def test_a_target_that_refuses_ends_the_connection_and_not_the_relay(tmp_path: Path) -> None:
    file, (port, nobody) = tmp_path / "relay.yaml", free_ports(2)
    write(file, port, nobody, delay_ms=1)
    async with process_of(console_script("headrace-lab"), "relay", str(file)) as relay:
        for _ in range(2):
            reader, writer = await connected(port)
            async with asyncio.timeout(20):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()
        code, _ = await relay.terminate()
    assert code == 0


async def test_open_connections_do_not_hold_the_program(tmp_path: Path) -> None:
    file, (port,) = tmp_path / "relay.yaml", free_ports(1)
    async with echoing() as target:
        write(file, port, target, delay_ms=1)
        async with process_of(console_script("headrace-lab"), "relay", str(file)) as relay:
            ends = await connected(port)
            await round_trip(ends)
            code, _ = await relay.terminate()
            ends[1].close()
    assert code == 0
    assert relay.other == []


async def test_a_file_that_makes_no_sense_is_answered_with_why(tmp_path: Path) -> None:
    file = tmp_path / "relay.yaml"
    link = {"listen": "127.0.0.1:7", "target": "127.0.0.1:8"}
    file.write_text(json.dumps({"links": [link, link]}))
    async with process_of(console_script("headrace-lab"), "relay", str(file)) as relay:
        assert await relay.ended() == 2
    assert "give each link a port of its own" in "".join(relay.other)
