"""A store behind a thread: nobody waits for a disk that hangs, and what it did not take is said."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from headrace_controller.control.intents import writer as module
from headrace_controller.control.intents.records import Act, Kind, Wish
from headrace_controller.control.intents.store import Change, StoreError
from headrace_controller.control.intents.writer import StoreWriter

WISH = Wish(kind=Kind.SHADOW)


class FakeStore:
    """A disk that the test owns."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.refuses = False
        self.written: list[Change] = []
        self.closed = threading.Event()

    def load(self) -> tuple[Wish, ...] | None:
        self._answer()
        return (WISH,)

    def write(self, changes: Sequence[Change], acts: Sequence[Act]) -> None:
        self._answer()
        self.written += changes

    def acts(self, limit: int, before: int | None) -> list[tuple[int, Act]]:
        self._answer()
        return []

    def close(self) -> None:
        self.closed.set()

    def _answer(self) -> None:
        self.goes_on.wait(20)
        if self.refuses:
            raise StoreError("disk full")


async def test_what_is_kept_is_said_to_be() -> None:
    store = FakeStore()
    writer = StoreWriter(store)
    assert writer.load() == (WISH,)
    assert await writer.keep([WISH]) is True
    assert store.written == [WISH]
    writer.close()
    assert store.closed.is_set()


async def test_a_disk_that_refuses_is_told_of_until_it_does_not() -> None:
    store, lost = FakeStore(), []
    writer = StoreWriter(store, on_lost=lambda: lost.append(1))
    store.refuses = True
    assert await writer.keep([WISH]) is False
    assert (writer.trouble, len(lost)) == ("disk full", 1)
    with pytest.raises(StoreError):
        await writer.acts(1, None)
    store.refuses = False
    assert await writer.keep([WISH]) is True
    assert writer.trouble == ""
    writer.close()


async def test_nobody_waits_long_for_a_disk_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was asked meanwhile is kept once it answers."""
    monkeypatch.setattr(module, "WAIT_S", 0.05)
    monkeypatch.setattr(module, "LOAD_S", 0.05)
    monkeypatch.setattr(module, "CLOSE_S", 20)
    store = FakeStore()
    store.goes_on.clear()
    writer = StoreWriter(store)
    assert writer.load() is None
    assert await writer.keep([WISH]) is False
    assert await writer.keep([WISH.key]) is False
    with pytest.raises(StoreError, match="does not answer"):
        await writer.acts(1, None)
    store.goes_on.set()
    writer.close()
    assert store.written == [WISH, WISH.key]


async def test_what_does_not_fit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE", 2)
    store, lost = FakeStore(), []
    store.goes_on.clear()
    writer = StoreWriter(store, on_lost=lambda: lost.append(1))
    done = [writer.submit([WISH]) for _ in range(5)]
    assert done[-1] is None
    assert len(lost) >= 2
    assert writer.trouble
    store.goes_on.set()
    next(each for each in reversed(done) if each is not None).result(20)
    writer.close()
