"""What breaks is said once, counted, and started again."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from headrace_agent.collectors import containment
from headrace_agent.collectors.containment import LONGEST_PAUSE_S, WELL_AFTER_S, Mishaps, keep_running
from tests.support.clock import FakeClock


def test_an_error_is_logged_when_it_changes_and_counted_each_time() -> None:
    mishaps = Mishaps()
    with capture_logs() as logs:
        for error in (KeyError("a"), KeyError("a"), KeyError("b"), KeyError("b"), KeyError("b")):
            mishaps.note("part", error)
        mishaps.note("other", KeyError("b"))
        mishaps.clear("part")
        mishaps.clear("part")
        mishaps.note("part", KeyError("b"))
    assert [(line["event"], line["part"]) for line in logs] == [
        ("unexpected error, contained", "part"),
        ("unexpected error, contained", "part"),
        ("unexpected error, contained", "other"),
        ("well again", "part"),
        ("unexpected error, contained", "part"),
    ]
    assert logs[0]["exc_info"].args == ("a",), "with its traceback"
    assert mishaps.counts == {"part": 6, "other": 1}


def test_parts_that_are_gone_are_unwell_no_more() -> None:
    """A cell that was taken out of the config must not stand among the broken parts for ever."""
    mishaps = Mishaps()
    for part in ("engine c1", "engine c1: probe", "engine c10: probe", "paths"):
        mishaps.note(part, KeyError("x"))
    mishaps.forget("engine c1", "reading of c1")
    assert mishaps.unwell == ("engine c10: probe", "paths")
    assert mishaps.counts["engine c1"] == 1


class Pauses:
    """Sleeps no time, and notes how long it should have been; ends the test after `limit` of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
        self.seconds: list[float] = []
        self._limit = limit
        monkeypatch.setattr("headrace_agent.collectors.containment.asyncio.sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) >= self._limit:
            raise asyncio.CancelledError


async def test_a_part_that_keeps_breaking_is_started_again_ever_more_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses, mishaps, clock = Pauses(monkeypatch, 8), Mishaps(), FakeClock()

    async def break_down() -> None:
        raise RuntimeError("broken")

    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await keep_running("part", break_down, clock, mishaps)
    assert pauses.seconds == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert LONGEST_PAUSE_S == 30.0
    assert len(logs) == 1
    assert mishaps.counts["part"] == 8


async def test_a_part_that_ends_by_itself_is_started_again_too(monkeypatch: pytest.MonkeyPatch) -> None:
    Pauses(monkeypatch, 2)
    mishaps = Mishaps()

    async def end() -> None:
        return None

    with pytest.raises(asyncio.CancelledError):
        await keep_running("part", end, FakeClock(), mishaps)
    assert mishaps.counts["part"] == 2


async def test_a_part_that_ran_well_for_long_is_news_when_it_breaks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses, clock = Pauses(monkeypatch, 3), FakeClock()

    async def run_for_long() -> None:
        clock.advance(WELL_AFTER_S)
        raise RuntimeError("broken")

    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await keep_running("part", run_for_long, clock, Mishaps())
    assert pauses.seconds == [1.0, 1.0, 1.0]
    assert [line["event"] for line in logs].count("unexpected error, contained") == 3


async def test_cancelling_is_no_mishap() -> None:
    mishaps = Mishaps()
    task = asyncio.create_task(
        keep_running("part", asyncio.Event().wait, FakeClock(), mishaps),  # type: ignore[arg-type]
        name="kept running",
    )
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert mishaps.counts == {}


def test_words_of_an_error_are_bounded() -> None:
    assert len(containment.describe(ValueError("x" * 10_000))) <= 256
