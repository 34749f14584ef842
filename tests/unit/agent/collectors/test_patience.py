"""A bound on waits that are many and short."""

from __future__ import annotations

import asyncio

import pytest

from headrace_agent.collectors.patience import Patience

LONG_S = 60.0


class Timers:
    """Counts the timers that the event loop is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        loop = asyncio.get_running_loop()
        call_at = loop.call_at

        def counting(when: float, callback: object, *args: object) -> asyncio.TimerHandle:
            self.made += 1
            return call_at(when, callback, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "call_at", counting)


async def test_a_wait_that_takes_too_long_is_given_up() -> None:
    patience = Patience()
    with pytest.raises(TimeoutError), patience.of(0.01):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0, "it is no cancellation from elsewhere"


async def test_waits_that_end_in_time_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, patience = Timers(monkeypatch), Patience()
    for _ in range(50):
        with patience.of(LONG_S):
            await asyncio.sleep(0)
    assert timers.made == 1


async def test_the_timer_of_an_earlier_wait_cuts_none_short() -> None:
    """It rings within the second wait, which has its own time."""
    patience, loop = Patience(), asyncio.get_running_loop()
    with patience.of(1.0):
        await asyncio.sleep(0.1)
    began = loop.time()
    with pytest.raises(TimeoutError), patience.of(1.5):
        await asyncio.Event().wait()
    assert loop.time() - began >= 1.5


async def test_a_shorter_wait_does_not_wait_for_the_timer_of_a_longer_one() -> None:
    patience = Patience()
    with patience.of(LONG_S):
        pass
    async with asyncio.timeout(20.0):
        with pytest.raises(TimeoutError), patience.of(0.01):
            await asyncio.Event().wait()


async def test_a_ring_between_two_waits_disturbs_nothing_and_the_next_is_bounded() -> None:
    patience = Patience()
    with patience.of(0.01):
        pass
    await asyncio.sleep(0.05)
    with pytest.raises(TimeoutError), patience.of(0.01):
        await asyncio.Event().wait()


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    patience, begun = Patience(), asyncio.Event()

    async def wait() -> None:
        with patience.of(LONG_S):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(wait(), name="wait")
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_that_comes_with_the_end_of_patience_stays_one() -> None:
    """Both in one turn of the event loop, before the task has seen either."""
    patience, begun = Patience(), asyncio.Event()

    async def wait() -> None:
        with patience.of(0.05):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(wait(), name="wait")
    await begun.wait()
    loop = asyncio.get_running_loop()
    loop.call_at(loop.time() + 0.06, task.cancel)
    until = loop.time() + 0.08
    while loop.time() < until:  # the loop stands still, so that both are due when it goes on
        pass
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_goes_wrong_within_comes_through() -> None:
    patience = Patience()
    with pytest.raises(KeyError), patience.of(LONG_S):
        raise KeyError("x")
    with patience.of(LONG_S):
        pass


async def test_it_bounds_one_wait_at_a_time() -> None:
    patience = Patience()
    with patience.of(LONG_S), pytest.raises(RuntimeError, match="one wait at a time"), patience.of(1.0):
        pass
