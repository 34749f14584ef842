"""An event that comes by itself when its time is up."""

from __future__ import annotations

import asyncio

from headrace_agent.heartbeat.alarm import Alarm

LONG_S = 60.0


async def test_it_goes_off_when_its_time_is_up() -> None:
    async with asyncio.timeout(5.0):
        await Alarm().wait(0.01)


async def test_whoever_sets_it_ends_the_wait() -> None:
    alarm = Alarm()
    waits = asyncio.create_task(alarm.wait(LONG_S), name="waits")
    await asyncio.sleep(0)
    alarm.set()
    alarm.set()
    async with asyncio.timeout(5.0):
        await waits


async def test_what_was_set_before_the_wait_is_not_waited_for() -> None:
    alarm = Alarm()
    alarm.set()
    async with asyncio.timeout(5.0):
        await alarm.wait(LONG_S)


async def test_once_cleared_it_is_waited_for_again() -> None:
    alarm = Alarm()
    alarm.set()
    alarm.clear()
    waits = asyncio.create_task(alarm.wait(LONG_S), name="waits")
    await asyncio.sleep(0.02)
    assert not waits.done()
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    alarm.set()  # nobody waits any more
    async with asyncio.timeout(5.0):
        await alarm.wait(LONG_S)


async def test_a_wait_that_is_over_sets_nothing_later() -> None:
    alarm = Alarm()
    asyncio.get_running_loop().call_soon(alarm.set)
    await alarm.wait(0.03)
    alarm.clear()
    waits = asyncio.create_task(alarm.wait(LONG_S), name="waits")
    await asyncio.sleep(0.1)
    assert not waits.done()
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
