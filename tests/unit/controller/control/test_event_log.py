"""The log of what happened: numbered, bounded, and followed without a queue a reader."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from headrace_controller.control.event_log import EventLog
from tests.support.clock import FakeClock
from tests.unit.controller.control.region import Region


@pytest.fixture
def log() -> EventLog:
    return EventLog(FakeClock(), kept=3)


def test_numbers_rise_by_one_and_begin_where_a_restart_cannot_repeat_them(log: EventLog) -> None:
    first = log.last_id + 1
    assert first == FakeClock().wall_ns() // 1_000_000
    for word in ("a", "b"):
        log.add("operator", word)
    assert [entry.id for entry in log.newest(10)] == [first, first + 1]


def test_a_reader_gets_what_came_after_and_is_told_of_a_gap(log: EventLog) -> None:
    start = log.last_id
    assert log.after(start, 10) == ([], False)
    for word in ("a", "b", "c", "d", "e"):
        log.add("operator", word)
    entries, gap = log.after(start, 10)
    assert ([entry.event for entry in entries], gap) == (["c", "d", "e"], True)
    entries, gap = log.after(entries[0].id, 1)
    assert ([entry.event for entry in entries], gap) == (["d"], False)
    assert log.after(log.last_id, 10) == ([], False)


def test_a_number_from_before_a_restart_is_a_gap() -> None:
    clock = FakeClock()
    old = EventLog(clock).last_id
    clock.advance(60)
    entries, gap = EventLog(clock).after(old, 10)
    assert (list(entries), gap) == ([], True)


async def test_waiting_ends_with_the_next_entry_and_with_the_log(log: EventLog) -> None:
    waiting = asyncio.create_task(log.wait(log.last_id), name="a reader")
    await asyncio.sleep(0)
    assert not waiting.done()
    log.add("operator", "x")
    async with asyncio.timeout(5):
        await waiting
    last = asyncio.create_task(log.wait(log.last_id), name="another reader")
    await asyncio.sleep(0)
    log.close()
    async with asyncio.timeout(5):
        await last


def test_every_change_of_a_cell_and_every_wish_is_in_it_with_its_time() -> None:
    region = Region()
    region.connect("c1")
    region.tick()
    region.beat("c1")
    region.tick()
    region.clock.advance(60)
    region.loop.drain("c1", "repair", None)
    region.tick(0.0)
    told = region.loop.events.newest(10)
    assert [(e.kind, e.cell, e.from_state, e.to_state) for e in told] == [
        ("state", "c1", "", "LOADING"),
        ("state", "c1", "LOADING", "READY"),
        ("state", "c1", "READY", "DRAINING"),
    ]
    assert told[-1].cause == "repair"
    took = datetime.fromisoformat(told[-1].at) - datetime.fromisoformat(told[1].at)
    assert took.total_seconds() == pytest.approx(60.0, abs=0.01)
    assert datetime.fromisoformat(told[-1].at).timestamp() == pytest.approx(
        region.clock.wall_ns() / 1e9, abs=0.01
    )
