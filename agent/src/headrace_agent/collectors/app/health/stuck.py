"""An engine whose health endpoint says 200 while nothing moves: one completion tells."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

from headrace_agent.collectors import moments
from headrace_agent.collectors.app.health.state import Change, EngineHealth
from headrace_agent.collectors.app.http.errors import CallError, SilentError
from headrace_agent.collectors.grid import AWAKE_S, next_due
from headrace_agent.collectors.readings import EngineState
from headrace_shared.clock import Clock

LOOK_S: Final = 1.0
# A long prompt may keep every counter still for seconds.
STUCK_AFTER_S: Final = 10.0
# What is asked costs the engine a request, and joins its queue.
ASK_AGAIN_S: Final = 60.0


class StuckCheck:
    """Asks an engine that says it works and does not move for one completion, at most once a minute.

    `frozen_since()` says since when nothing moves, None where that is not so; `ask()` asks one
    completion, bounded in time, and raises CallError where it has no good answer.
    """

    def __init__(
        self,
        health: EngineHealth,
        frozen_since: Callable[[], float | None],
        ask: Callable[[], Awaitable[None]],
        took: Callable[[Change | None], None],
        clock: Clock,
    ) -> None:
        self._health = health
        self._frozen_since = frozen_since
        self._ask = ask
        self._took = took
        self._clock = clock
        self._asked_at = -math.inf

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self.check()
            now = self._clock.now()
            await moments.sleep(next_due(now, LOOK_S, AWAKE_S) - now)

    async def check(self) -> None:
        """One look, and a completion where it is due."""
        since, now = self._frozen_since(), self._clock.now()
        if since is None:
            if self._health.is_stuck:
                self._took(self._health.unstuck("its figures move again", now))
        elif self._doubted and now - since >= STUCK_AFTER_S and now - self._asked_at >= ASK_AGAIN_S:
            self._asked_at = now
            await self._put_to_the_test(since)

    @property
    def _doubted(self) -> bool:
        return self._health.state is EngineState.SERVING or self._health.is_stuck

    async def _put_to_the_test(self, since: float) -> None:
        life = self._health.life
        try:
            await self._ask()
        except SilentError as error:
            now = self._clock.now()
            # What moved meanwhile is only slow: the completion may wait behind others.
            if self._frozen_since() == since:
                cause = f"nothing has moved for {now - since:.0f} s although requests run, and {error}"
                self._took(self._health.stuck(life, cause, now))
        except CallError:
            return  # any answer is one, and what else went wrong is for the probe to judge
        else:
            if life == self._health.life:
                self._took(self._health.unstuck("a completion was answered", self._clock.now()))
