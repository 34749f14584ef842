"""An answer that comes in the very turn in which its asker gives up."""

from __future__ import annotations

import asyncio
from unittest.mock import create_autospec

import pytest

from headrace_agent.collectors.app.http.connection import Connection

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def hear(connection: Connection, data: bytes) -> None:
    buffer = connection.get_buffer(len(data))
    buffer[: len(data)] = data
    connection.buffer_updated(len(data))


async def test_an_answer_too_late_by_a_hair_breaks_nothing() -> None:
    connection = Connection()
    connection.connection_made(create_autospec(asyncio.Transport, instance=True))
    asking = asyncio.create_task(connection.exchange(b"GET / HTTP/1.1\r\n\r\n", 100), name="asking")
    await asyncio.sleep(0)
    asking.cancel()  # the time-out fires ...
    hear(connection, ANSWER)  # ... and the answer is read before its asker wakes
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not connection.open


async def test_an_answer_in_time_is_handed_on() -> None:
    connection = Connection()
    connection.connection_made(create_autospec(asyncio.Transport, instance=True))
    asking = asyncio.create_task(connection.exchange(b"GET / HTTP/1.1\r\n\r\n", 100), name="asking")
    await asyncio.sleep(0)
    hear(connection, ANSWER)
    assert (await asking).body == b"ok"
