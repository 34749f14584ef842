"""All connections receive in one place: what comes for one must never be another's."""

from __future__ import annotations

import asyncio

from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.dial import Dialer
from headrace_shared.clock import SystemClock
from tests.integration.agent_app.raw_server import Handler, raw_server, read_request

LIMIT = 4 * 1024 * 1024
# More than is received at once.
LONG = 700_000


def _dripping(letter: bytes, length: int) -> Handler:
    """Answer in many pieces, with pauses in between."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length)
            for at in range(0, length, 50_000):
                writer.write(letter * min(50_000, length - at))
                await writer.drain()
                await asyncio.sleep(0)

    return handle


async def test_pages_that_come_at_the_same_time_are_not_mixed() -> None:
    lengths = {b"a": LONG, b"b": LONG + 1, b"c": 100, b"d": 1}
    async with asyncio.TaskGroup() as group:
        for letter, length in lengths.items():
            group.create_task(_ask(letter, length), name=f"asks for {letter!r}")


async def _ask(letter: bytes, length: int) -> None:
    async with raw_server(_dripping(letter, length)) as port:
        url = f"http://127.0.0.1:{port}"
        client = EngineClient(Dialer(url, SystemClock()), url)
        try:
            for _ in range(5):
                answer = await client.get("/metrics", 60.0, LIMIT)
                assert answer.body == letter * length
        finally:
            client.close()
            await asyncio.sleep(0)
