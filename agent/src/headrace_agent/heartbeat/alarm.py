"""An event that also comes by itself when its time is up."""

from __future__ import annotations

import asyncio


class Alarm:
    """Set by whoever has something urgent. One task waits for it, and never longer than it says."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Let the one who waits go on; one who waits later does not have to."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        """What was urgent is seen to."""
        self._is_set = False

    async def wait(self, seconds: float) -> None:
        """Return once it is set, which it sets itself after so long."""
        if self._is_set:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self.set)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
