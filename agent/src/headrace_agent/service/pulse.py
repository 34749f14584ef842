"""The agent's own pulse: is its event loop turning, and was it lately?"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from headrace_agent.service.notify import notify, watchdog_interval_s
from headrace_shared import log
from headrace_shared.clock import Clock

INTERVAL_S: Final = 1.0
# systemd asks for at least one sign within its interval; a third leaves room for a late one.
PINGS_PER_INTERVAL: Final = 3
# Beats are due every 0.1 s and a controller bears 0.5 s of silence: a loop that stood still this
# long has cost its cells a question.
STALL_S: Final = 2.0
REMEMBER_S: Final = 15.0


class Pulse:
    """Beats once a second; how late a beat comes is how long the loop stood still.

    Every beat is also a sign for systemd's watchdog: an agent whose loop hangs is started again.
    """

    def __init__(self, clock: Clock, watchdog_s: float | None = None) -> None:
        """`watchdog_s`: systemd's interval; None takes it from the environment."""
        wanted = watchdog_s if watchdog_s is not None else watchdog_interval_s()
        self._clock = clock
        self._watched = wanted is not None
        self.interval_s = INTERVAL_S if wanted is None else min(INTERVAL_S, wanted / PINGS_PER_INTERVAL)
        self._due: float | None = None
        self._stalls: deque[tuple[float, float]] = deque(maxlen=32)
        self._log = log.get("agent")

    async def run(self) -> None:
        """Beat until cancelled."""
        self._due = None
        while True:
            self.beat(self._clock.now())
            await asyncio.sleep(self.interval_s)

    def beat(self, now: float) -> None:
        """One beat at `now`."""
        late_s = 0.0 if self._due is None else now - self._due
        self._due = now + self.interval_s
        if late_s >= STALL_S:
            self._stalls.append((now, late_s))
            self._log.warning("the event loop stood still", seconds=round(late_s, 2))
        if self._watched:
            notify("WATCHDOG=1")

    def stalled_s(self, now: float) -> float:
        """The longest standstill that ended within the last REMEMBER_S, or goes on; 0 for none."""
        ended = [late_s for at, late_s in self._stalls if now - at <= REMEMBER_S]
        goes_on = now - self._due if self._due is not None else 0.0
        return max([*ended, goes_on if goes_on >= STALL_S else 0.0])
