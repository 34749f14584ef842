"""Long answers: events as they come, and pages that give way between slices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from headrace_controller.admin import api, streams
from headrace_controller.admin.streams import MAX_FOLLOWERS
from tests.integration.controller_admin.client import Client, ask
from tests.unit.controller.control.region import Region

STREAM = "/api/v1/events/stream"


async def read(answer: aiohttp.ClientResponse, count: int) -> list[dict[str, Any]]:
    """The next blocks of an event stream, as their fields; comments have the field ""."""
    blocks: list[dict[str, Any]] = []
    async with asyncio.timeout(30):
        while len(blocks) < count:
            block: dict[str, Any] = {}
            while (line := (await answer.content.readline()).decode().rstrip("\n")) != "":
                name, _, value = line.partition(":")
                block[name] = value.strip()
            blocks.append(block)
    return blocks


async def test_events_come_as_they_happen_and_can_be_taken_up_again(client: Client, region: Region) -> None:
    async with client.get(STREAM) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert (await read(answer, 1))[0]["retry"]
        await ask(client, "POST", "/api/v1/cells/c1/drain", {"cause": "repair"})
        region.tick()
        first, second = await read(answer, 2)
    assert (first["event"], second["event"]) == ("operator", "state")
    said = json.loads(second["data"])
    assert (said["cell"], said["from"], said["to"], str(said["id"])) == (
        "c1",
        "READY",
        "DRAINING",
        second["id"],
    )
    async with client.get(STREAM, headers={"Last-Event-ID": first["id"]}) as answer:
        _, again = await read(answer, 2)
    assert again == second


async def test_a_reader_from_long_ago_is_told_of_a_gap(client: Client, region: Region) -> None:
    async with client.get(STREAM, params={"after": 1}) as answer:
        _, block = await read(answer, 2)
        assert block["event"] == "gap"
        assert "id" not in block
    oldest = region.loop.events.newest(1000)[0].id
    async with client.get(STREAM, params={"after": oldest - 1}) as answer:
        _, block = await read(answer, 2)
        assert block["id"] == str(oldest)


async def test_a_number_that_was_not_given_yet_counts_as_the_newest(client: Client, region: Region) -> None:
    async with client.get(STREAM, params={"after": region.loop.events.last_id + 1000}) as answer:
        await read(answer, 1)
        region.loop.events.add("operator", "x")
        assert (await read(answer, 1))[0]["event"] == "operator"


@pytest.fixture
async def quick(region: Region) -> AsyncIterator[Client]:
    """Pages with a heartbeat that a test can wait for."""
    app = api.build(region.desk.surface, region.metrics.registry, heartbeat_s=0.05)
    async with TestClient(TestServer(app)) as started:
        yield started


async def test_a_stream_on_which_nothing_happens_beats(quick: Client) -> None:
    async with quick.get(STREAM) as answer:
        _, *beats = await read(answer, 3)
        assert [list(beat) for beat in beats] == [[""], [""]]


async def test_only_so_many_follow_and_whoever_leaves_makes_room(quick: Client, region: Region) -> None:
    held = [await quick.get(STREAM) for _ in range(MAX_FOLLOWERS)]
    refused = await quick.get(STREAM)
    assert (refused.status, "Retry-After" in refused.headers) == (503, True)
    assert "follow already" in (await refused.json())["error"]
    for answer in held:
        answer.close()
    async with asyncio.timeout(10):
        while (again := await quick.get(STREAM)).status != 200:  # noqa: ASYNC110 (another task's doing)
            await asyncio.sleep(0.02)
    again.close()


async def test_streams_end_with_the_controller(region: Region) -> None:
    async with TestClient(TestServer(region.desk.app)) as client, client.get(STREAM) as answer:
        await read(answer, 1)
        await region.desk.app.shutdown()
        async with asyncio.timeout(10):
            assert await answer.content.read() == b""


async def test_a_reader_that_takes_nothing_is_cut_off(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds neither memory nor a place: what it has not seen is not kept for it."""
    monkeypatch.setattr(streams, "WRITE_S", 0.1)
    app = api.build(region.desk.surface, region.metrics.registry, heartbeat_s=0.02)
    async with TestServer(app) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port, limit=1024)
        writer.write(f"GET {STREAM} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        await writer.drain()
        async with asyncio.timeout(30):
            assert await reader.readuntil(b"retry")
            while not await gone(region, writer):  # noqa: ASYNC110 (the server's doing)
                await asyncio.sleep(0.01)
        writer.close()


async def gone(region: Region, writer: asyncio.StreamWriter) -> bool:
    """Whether the server has cut the connection, after another flood of events."""
    for _ in range(500):
        region.loop.events.add("operator", "x" * 1000)
    try:
        writer.write(b" ")
        await writer.drain()
    except ConnectionError:
        return True
    return writer.transport.is_closing()


@pytest.mark.parametrize("path", ["/api/v1/cells?limit=10000", "/metrics"])
async def test_a_long_page_lets_the_loop_turn_between_slices(
    client: Client, region: Region, path: str
) -> None:
    """Counted in turns, not in time: a page of n slices gives way n times."""
    region.connect(*(f"x{number:05d}" for number in range(1000)), node="n9")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count(), name="count turns")
    sent = asyncio.create_task(client.get(path), name="the page")
    answer = await sent
    before = turns
    text = await answer.text()
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)
    assert text.count("x00") >= 900
    assert turns - before >= 5
