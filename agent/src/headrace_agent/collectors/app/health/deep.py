"""A health that costs the engine some work: asked now and then, where the cheap one says little.

Behind a server that answers, what generates may be dead. Engines that have a cheap question for
that need no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headrace_agent.collectors.app.health.state import Change, EngineHealth
from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.errors import REFUSED, CallError
from headrace_shared.clock import Clock

# SGLang generates a token for it when it has nothing else to do.
EVERY_S: Final = 5.0
# It waits up to 20 s for a token before it says that there is none.
TIMEOUT_S: Final = 25.0
_NO_ANSWER: Final = frozenset({404, 405, *REFUSED})


class DeepCheck:
    """Asks an engine for its deep health at intervals, and soon after `hurry`.

    `path()` is where, "" where engines of its kind have none. `took(change)` is called with what an
    answer changes. That there is no answer proves nothing: the probe judges connections.
    """

    def __init__(
        self,
        client: EngineClient,
        health: EngineHealth,
        path: Callable[[], str],
        clock: Clock,
        took: Callable[[Change | None], None],
    ) -> None:
        self._client = client
        self._health = health
        self._path = path
        self._clock = clock
        self._took = took
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        """Ask next as soon as the question that may be open is answered."""
        self._hurried.set()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            try:
                async with asyncio.timeout(EVERY_S):
                    await self._hurried.wait()
            except TimeoutError:
                pass
            self._hurried.clear()
            await self.check()

    async def check(self) -> None:
        """Ask once, where there is something to ask and no doubt yet."""
        path, life = self._path(), self._health.life
        if not path or not self._health.healthy:
            return
        try:
            answer = await self._client.get(path, TIMEOUT_S)
        except CallError:
            return
        if answer.status not in (200, *_NO_ANSWER) and life == self._health.life:
            self._took(self._health.health(answer.status, self._clock.now(), f"GET {path}"))
