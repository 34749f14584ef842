"""Sleeping together."""

from __future__ import annotations

import asyncio

import pytest

from headrace_agent.collectors import moments


async def test_who_sleeps_to_the_same_moment_shares_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, made = asyncio.get_running_loop(), []
    call_at = loop.call_at
    monkeypatch.setattr(loop, "call_at", lambda when, *args: made.append(when) or call_at(when, *args))
    monkeypatch.setattr(loop, "time", lambda: 1000.0)
    sleepers = [asyncio.create_task(moments.sleep(0.3 + each * 1e-9), name="sleeper") for each in range(8)]
    await asyncio.sleep(0)
    monkeypatch.undo()
    assert len(made) == 1
    for each in sleepers:
        each.cancel()
    await asyncio.gather(*sleepers, return_exceptions=True)


@pytest.mark.parametrize("seconds", [0.0004, 0.001, 0.02, 0.0301])
async def test_no_sleep_ends_sooner_than_asked_for(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(5):
        began = loop.time()
        await moments.sleep(seconds)
        assert loop.time() - began >= seconds - 1e-6


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_no_time_is_one_turn_of_the_loop(seconds: float) -> None:
    turned: list[bool] = []
    asyncio.get_running_loop().call_soon(turned.append, True)
    await moments.sleep(seconds)
    assert turned


async def test_one_that_is_cancelled_does_not_wake_the_others_or_keep_them_asleep() -> None:
    sleepers = [asyncio.create_task(moments.sleep(1.5), name="sleeper") for _ in range(3)]
    await asyncio.sleep(0)
    sleepers[0].cancel()
    await asyncio.sleep(0.01)
    assert [each.done() for each in sleepers] == [True, False, False]
    async with asyncio.timeout(20.0):
        await asyncio.gather(*sleepers[1:])
