"""Sleeping together: who sleeps to about the same moment shares one timer.

A host's eight engines do most of what they do at the same moments. A timer for each is one more to
sort among all others, and one more turn of the event loop's hands when it is due.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final
from weakref import WeakKeyDictionary

# So much later than asked for may a sleep end; never sooner.
GRAIN_S: Final = 0.001
# Moments on a grid are off it by what the arithmetic of floats leaves.
_SLACK_S: Final = 1e-6

_Sleepers = dict[int, list[asyncio.Future[None]]]
_SLEEPERS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Sleepers]] = WeakKeyDictionary()


async def sleep(seconds: float) -> None:
    """Sleep as `asyncio.sleep` does, together with others."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return
    loop = asyncio.get_running_loop()
    sleepers = _SLEEPERS.setdefault(loop, {})
    moment = math.ceil((loop.time() + seconds - _SLACK_S) / GRAIN_S)
    waiter: asyncio.Future[None] = loop.create_future()
    if moment in sleepers:
        sleepers[moment].append(waiter)
    else:
        sleepers[moment] = [waiter]
        loop.call_at(moment * GRAIN_S + _SLACK_S, _wake, sleepers, moment)
    await waiter


def _wake(sleepers: _Sleepers, moment: int) -> None:
    for waiter in sleepers.pop(moment):
        if not waiter.done():  # its task may have been cancelled
            waiter.set_result(None)
