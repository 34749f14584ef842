"""Spreads the echoes of all paths over time."""

from __future__ import annotations

import asyncio

from headrace_shared.clock import Clock

# Replies that come together are taken in one after the other, and the last looks slow: of 200 at
# once, the mean shows 25 ms on loopback. So far apart they do not meet, and all paths together cost
# the host 50 echoes a second. More paths than that allows (25 at 500 ms) take turns.
SPACING_S = 0.02


class Pace:
    """Hands out turns, at least SPACING_S apart, in the order of asking."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue = asyncio.Lock()
        self._free_at = clock.now()

    async def turn(self) -> None:
        """Wait for a turn. One whose waiter is cancelled is not spent."""
        async with self._queue:
            wait_s = self._free_at - self._clock.now()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._free_at = self._clock.now() + SPACING_S
