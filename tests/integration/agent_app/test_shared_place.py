"""All connections receive in one place: what comes for one must never be another's."""

from __future__ import annotations

import asyncio

import pytest

from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.dial import Dialer
from headrace_agent.collectors.app.http.errors import ClosedError, SilentError
from headrace_shared.clock import SystemClock
from tests.integration.agent_app.raw_server import Handler, raw_server, read_request

LIMIT = 4 * 1024 * 1024
# More than is received at once.
LONG = 700_000
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"


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


async def test_pages_that_are_held_are_taken_in_together_and_no_later() -> None:
    """One that comes at once waits for the others; one that ends its connection is not lost by it."""
    clock, took = SystemClock(), {}

    async def ask(name: str, answer: bytes, pause_s: float) -> None:
        async with raw_server(_late(answer, pause_s)) as port:
            url = f"http://127.0.0.1:{port}"
            client = EngineClient(Dialer(url, clock), url)
            began = clock.now()
            assert (await client.get("/metrics", 60.0, LIMIT, hold_s=0.3)).body == b"abc"
            took[name] = clock.now() - began
            client.close()
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(ask("early", OK + b"abc", 0.0), name="early")
        group.create_task(ask("ended", b"HTTP/1.1 200 OK\r\n\r\nabc", 0.0), name="ended")
        group.create_task(ask("late", OK + b"abc", 0.5), name="late")
    assert took["early"] >= 0.29
    assert took["ended"] >= 0.29
    assert took["late"] >= 0.5


async def test_a_held_page_that_is_given_up_leaves_nothing_behind() -> None:
    async with raw_server(_late(OK + b"abc", 0.0)) as port:
        url = f"http://127.0.0.1:{port}"
        client = EngineClient(Dialer(url, SystemClock()), url)
        with pytest.raises(SilentError):
            await client.get("/metrics", 0.05, LIMIT, hold_s=0.2)
        await asyncio.sleep(0.3)  # the hold would have ended by now
        assert (await client.get("/metrics", 60.0, LIMIT)).body == b"abc"
        client.close()
        await asyncio.sleep(0)


async def test_a_held_page_goes_over_one_connection_until_that_ends() -> None:
    """The engine closes it after the second answer: the third page is asked for over another one."""
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            await read_request(reader)
            writer.write(OK + b"abc")
            await writer.drain()

    async with raw_server(handle) as port:
        url = f"http://127.0.0.1:{port}"
        client = EngineClient(Dialer(url, SystemClock()), url)
        for _ in range(4):
            assert (await client.get("/metrics", 60.0, LIMIT, hold_s=0.05)).body == b"abc"
        client.close()
    assert connections == 2


async def test_a_held_page_whose_connection_is_tidied_up_just_then_is_asked_for_again() -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        writer.write(OK + b"abc")
        await writer.drain()
        await read_request(reader)

    async with raw_server(handle) as port:
        url = f"http://127.0.0.1:{port}"
        client = EngineClient(Dialer(url, SystemClock()), url)
        for _ in range(3):
            assert (await client.get("/metrics", 60.0, LIMIT, hold_s=0.05)).body == b"abc"
        client.close()
    assert connections == 3


async def test_words_that_come_unasked_are_not_taken_for_the_next_held_page() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK + b"abc")
        await writer.drain()
        await asyncio.sleep(0.1)  # the first answer has been taken in by then
        writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await reader.read()

    async with raw_server(handle) as port:
        url = f"http://127.0.0.1:{port}"
        client = EngineClient(Dialer(url, SystemClock()), url)
        for _ in range(2):
            answer = await client.get("/metrics", 60.0, LIMIT, hold_s=0.02)
            assert (answer.status, answer.body) == (200, b"abc")
            await asyncio.sleep(0.2)
        client.close()


async def test_a_held_page_larger_than_what_is_received_at_once_comes_whole() -> None:
    async with raw_server(_dripping(b"e", LONG)) as port:
        url = f"http://127.0.0.1:{port}"
        client = EngineClient(Dialer(url, SystemClock()), url)
        for _ in range(2):
            assert (await client.get("/metrics", 60.0, LIMIT, hold_s=0.05)).body == b"e" * LONG
        client.close()


async def test_a_held_page_that_ends_without_an_answer_is_not_asked_for_for_ever() -> None:
    asked = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await read_request(reader)
        asked += 1

    async with raw_server(handle) as port:
        url = f"http://127.0.0.1:{port}"
        client = EngineClient(Dialer(url, SystemClock()), url)
        with pytest.raises(ClosedError, match="without an answer"):
            await client.get("/metrics", 60.0, LIMIT, hold_s=0.05)
        client.close()
    assert asked == 1


def _late(answer: bytes, pause_s: float) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await asyncio.sleep(pause_s)
        writer.write(answer)
        await writer.drain()

    return handle
