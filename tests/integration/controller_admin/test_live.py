"""The region as a stream of changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from headrace_controller.admin.live import feed as feed_module
from headrace_controller.admin.live.feed import KEPT, LiveFeed
from headrace_controller.admin.live.readers import MAX_READERS
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import NAMES
from tests.integration.controller_admin.client import Client, ask
from tests.integration.controller_admin.test_streams import read
from tests.unit.controller.control.region import Region

LIVE = "/api/v1/live"
Block = tuple[str, Any]


class Reader:
    """A reader of the stream: its hello, and its cells put together from what has come."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.hello: dict[str, Any] = {}
        self.cells: dict[str, dict[str, Any]] = {}
        self.region: dict[str, Any] = {}
        self.wholes = 0

    async def next(self, event: str) -> Any:
        """The data of the next block of this name; those before it are taken in."""
        while True:
            (block,) = await read(self._answer, 1)
            name = block.get("event", "")
            data = json.loads(block["data"]) if "data" in block else None
            if name == "hello":
                self.hello = data
            elif name == "cells":
                self._take(data)
            elif name == "region":
                self.region = data
            if name == event:
                return data

    def _take(self, data: dict[str, Any]) -> None:
        if data["whole"]:
            self.wholes += 1
            self.cells = {}
        for names, rows in ((self.hello["facts"], data["facts"]), (self.hello["columns"], data["rows"])):
            for row in rows:
                self.cells.setdefault(row[0], {}).update(zip(names, row, strict=True))
        for cell in data["gone"]:
            del self.cells[cell]


@asynccontextmanager
async def reading(client: Client, **query: Any) -> AsyncIterator[Reader]:
    """A reader that has had the first frame."""
    async with client.get(LIVE, params=query) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        reader = Reader(answer)
        await reader.next("region")
        yield reader


async def test_the_first_frame_has_everything(client: Client) -> None:
    async with reading(client) as reader:
        assert (reader.hello["region"], reader.hello["role"]) == ("r", "operator")
        assert [each["name"] for each in reader.hello["signals"]] == list(NAMES)
        assert len(set(reader.hello["columns"])) == len(reader.hello["columns"])
        assert set(reader.cells) == {"c1", "c2", "site/c3"}
        cell = reader.cells["c1"]
        assert (cell["state"], cell["site"], cell["node"], cell["models"]) == ("READY", "berlin", "n1", ["m"])
        assert (cell["kv_fill"], cell["queue_depth"], cell["ttft_p95_s"]) == (0.5, 1.0, None)
        assert (cell["rtt_ms"], cell["jitter_ms"]) == ([5.0, None], [0.5, None])
        assert reader.cells["c2"]["state"] == "LOADING"
        status = reader.region["status"]
        assert [site["site"] for site in status["sites"]] == ["berlin", "paris"]
        assert [pool["model"] for pool in reader.region["pools"]] == ["m"]


async def test_shares_are_of_the_pool_and_flows_of_the_gateway(client: Client) -> None:
    _, listed = await ask(client, "GET", "/api/v1/cells")
    weights = {cell["id"]: cell["weights"]["gw-1"] for cell in listed["cells"]}
    total = sum(weights.values())
    async with reading(client) as reader:
        for cell, weight in weights.items():
            assert reader.cells[cell]["weight"][0] == weight
            assert reader.cells[cell]["share"][0] == pytest.approx(weight / total, abs=1e-3)
        paths = {(each["site"], each["gateway"]): each for each in reader.region["paths"]}
        assert paths["berlin", "gw-1"]["flow"] == pytest.approx(weights["c1"] / total, abs=1e-5)
        assert sum(each["flow"] for key, each in paths.items() if key[1] == "gw-1") == pytest.approx(1)
        assert (paths["berlin", "gw-1"]["rtt_ms"], paths["berlin", "gw-2"]["rtt_ms"]) == (5.0, None)


async def test_only_what_changed_follows(client: Client, region: Region) -> None:
    async with reading(client) as reader:
        region.tick()
        region.beat("c1", signals=pb.Signals(queue_depth=7, kv_fill=0.5, compute_active=0.25))
        region.tick(1.0)
        data = await reader.next("cells")
        assert not data["whole"]
        assert data["facts"] == []
        assert "c1" in [row[0] for row in data["rows"]]
        assert reader.cells["c1"]["queue_depth"] == 7.0
        await reader.next("region")
        # Nothing moves any more: not even the clock. An entry of the log makes a frame due.
        region.clock.advance(0.2)
        region.loop.events.add("operator", "x")
        await reader.next("log")
        await reader.next("region")
        assert reader.wholes == 1


async def test_what_happens_is_sent_at_once_and_the_frame_after_it(client: Client, region: Region) -> None:
    async with reading(client) as reader:
        await ask(client, "POST", "/api/v1/cells/c1/drain", {"cause": "repair"})
        region.tick(0.15)
        entry = await reader.next("log")
        while entry["kind"] != "state":
            entry = await reader.next("log")
        assert (entry["cell"], entry["to"], entry["cause"]) == ("c1", "DRAINING", "repair")
        await reader.next("region")
        assert reader.cells["c1"]["state"] == "DRAINING"
        assert reader.cells["c1"]["cause"] == "repair"


async def test_cells_that_come_and_go(client: Client, region: Region) -> None:
    async with reading(client) as reader:
        region.connect("c9", node="n9", site="rome")
        region.tick(1.0)
        await reader.next("region")
        assert (reader.cells["c9"]["site"], reader.cells["c9"]["state"]) == ("rome", "LOADING")
        region.loop.hello(pb.Hello(node="n9", site="rome", incarnation=2), region.clock.now())
        async with asyncio.timeout(10):
            while "c9" in reader.cells:
                region.tick(700.0)
                await reader.next("region")


async def test_marks_say_what_is_not_as_it_should_be(client: Client, region: Region) -> None:
    await ask(client, "PUT", "/api/v1/cells/c1/override", {"weight": 7, "cause": "canary"})
    await ask(client, "PUT", "/api/v1/sites/paris/cordon", {"cause": "cooling"})
    region.beat("c1", hardware_source=pb.HARDWARE_SOURCE_NVML)
    region.tick()
    async with reading(client) as reader:
        assert reader.cells["c1"]["marks"] == ["nvml", "override:7"]
        assert reader.cells["site/c3"]["marks"] == ["cordoned"]
        assert reader.cells["c2"]["marks"] == []


async def test_a_reader_goes_on_after_the_entry_that_it_knows(client: Client, region: Region) -> None:
    first = region.loop.events.last_id
    region.loop.events.add("operator", "while away")
    async with client.get(LIVE, params={"after": first}) as answer:
        reader = Reader(answer)
        assert (await reader.next("log"))["event"] == "while away"
    async with client.get(LIVE, params={"after": 1}) as answer:
        assert await Reader(answer).next("gap") == {}


async def test_a_frame_is_made_once_for_all_readers(
    client: Client, region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    make = feed_module.make_rows

    def counted(*arguments: Any) -> Any:
        made.append(arguments[1])
        return make(*arguments)

    monkeypatch.setattr(feed_module, "make_rows", counted)
    async with reading(client) as one, reading(client) as two, reading(client) as three:
        assert len(made) == 1
        region.tick(1.0)
        await asyncio.gather(one.next("region"), two.next("region"), three.next("region"))
    assert len(made) == 2


async def test_who_is_far_behind_gets_the_whole_again(region: Region) -> None:
    feed = LiveFeed(region.desk.surface)
    await feed.update(urgent=False)
    number, whole = feed.after(-1)
    assert b'"whole":true' in whole
    assert feed.after(number) == (number, b"")
    for _ in range(KEPT):
        region.tick(1.0)
        await feed.update(urgent=False)
    newest, changes = feed.after(number)
    assert (newest, changes.count(b"event: region")) == (number + KEPT, KEPT)
    assert b'"whole":true' not in changes
    region.tick(1.0)
    await feed.update(urgent=False)
    _, again = feed.after(number)
    assert (again.count(b'"whole":true'), again.count(b"event: region")) == (1, 1)


async def test_who_comes_after_a_while_gets_no_frame_of_before(client: Client, region: Region) -> None:
    async with reading(client):
        pass
    region.beat("c1", signals=pb.Signals(queue_depth=9))
    region.tick(60.0)
    async with reading(client) as reader:
        assert reader.wholes == 1
        assert reader.cells["c1"]["queue_depth"] == 9.0


async def test_no_two_frames_are_closer_than_they_may_be(region: Region) -> None:
    feed = LiveFeed(region.desk.surface)
    await feed.update(urgent=False)
    number, _ = feed.after(-1)
    await feed.update(urgent=True)
    assert feed.after(-1)[0] == number
    assert feed.due_in(urgent=True) == pytest.approx(0.1)
    assert feed.due_in(urgent=False) == pytest.approx(1.0)
    region.clock.advance(0.11)
    await feed.update(urgent=False)
    assert feed.after(-1)[0] == number
    await feed.update(urgent=True)
    assert feed.after(-1)[0] == number + 1


async def test_only_so_many_read(client: Client) -> None:
    held = [await client.get(LIVE) for _ in range(MAX_READERS)]
    refused = await client.get(LIVE)
    assert (refused.status, "Retry-After" in refused.headers) == (503, True)
    for answer in held:
        answer.close()


async def test_the_stream_ends_with_the_controller(client: Client, region: Region) -> None:
    async with client.get(LIVE) as answer:
        await Reader(answer).next("region")
        await region.desk.app.shutdown()
        async with asyncio.timeout(10):
            await answer.content.read()


async def test_in_a_large_fleet_cells_take_turns_and_what_happens_goes_first(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "ROWS_A_FRAME", 1)
    looked: list[list[str]] = []
    make = feed_module.make_rows

    def counted(surface: Any, cells: Any, *more: Any) -> Any:
        looked.append(list(cells))
        return make(surface, cells, *more)

    monkeypatch.setattr(feed_module, "make_rows", counted)
    feed = LiveFeed(region.desk.surface)

    async def frame(urgent: bool = False, seconds: float = 1.0) -> list[str]:
        region.tick(seconds)
        looked.clear()
        await feed.update(urgent)
        return [cell for cells in looked for cell in cells]

    assert await frame() == ["c1", "c2", "site/c3"], "the first frame is whole"
    assert [await frame() for _ in range(4)] == [["c1"], ["c2"], ["site/c3"], ["c1"]]
    region.loop.events.add("operator", "override", cell="site/c3")
    assert sorted(await frame(urgent=True, seconds=0.1)) == ["c2", "site/c3"]
    assert await frame() == ["site/c3"]
    assert await frame(seconds=60.0) == ["c1", "c2", "site/c3"], "all is old that nobody has looked at"


async def test_urgent_frames_of_many_rows_are_kept_apart(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "ROWS_AT_ONCE", 1)
    feed = LiveFeed(region.desk.surface)
    await feed.update(urgent=False)
    assert feed.due_in(urgent=True) == pytest.approx(0.3), "three cells, one at once"
    assert feed.due_in(urgent=False) == pytest.approx(1.0)
