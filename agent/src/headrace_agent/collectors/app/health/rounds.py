"""One heartbeat for all health probes of a host.

Eight engines are asked eighty times a second, which done one by one would be most of what the
agent costs: a task that wakes, a timer, and an answer that wakes the agent again, each time. In
rounds the agent wakes twice, however many engines it has: once to put all questions, and once a
little later to hear all answers.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from headrace_agent.collectors.grid import next_due
from headrace_shared.clock import Clock

# Most answers are there by then; for those that are not, it looks again at growing distances.
FIRST_LOOK_S: Final = 0.015
LONGEST_LOOK_S: Final = 0.1
SHORTEST_LOOK_S: Final = 0.001


class Member(Protocol):
    """One probe. Both are called by the event loop and must neither block nor raise."""

    def ask(self, now: float) -> None:
        """A round begins: put the question, unless one is open."""
        ...

    def listen(self, now: float) -> float | None:
        """Hear the answer if it is there; until when to look again at the latest, None for no more."""
        ...


class Rounds:
    """Calls its members every `interval_s`, on a grid that all rounds of this interval share."""

    def __init__(self, interval_s: float, clock: Clock) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._members: list[Member] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._gap_s = FIRST_LOOK_S

    def join(self, member: Member) -> None:
        """Take part from now on, in a first round of its own at once."""
        self._members.append(member)
        now = self._clock.now()
        member.ask(now)
        if self._timer is None:
            self._due = next_due(now, self._interval_s)
        self._gap_s = FIRST_LOOK_S
        self._wait_until(min(self._due, now + self._gap_s), now)

    def leave(self, member: Member) -> None:
        """Take part no more."""
        self._members.remove(member)
        if not self._members and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hurry(self, member: Member) -> None:
        """Let one member ask at once, after hearing what it may have been answered, and look for its
        answer soon and often."""
        now = self._clock.now()
        member.listen(now)
        member.ask(now)
        self._gap_s = SHORTEST_LOOK_S
        self._wait_until(min(self._due, now + self._gap_s), now)

    def _wait_until(self, at: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - now), self._wake)

    def _wake(self) -> None:
        now = self._clock.now()
        wanted: list[float] = []
        try:
            wanted = [at for member in self._members if (at := member.listen(now)) is not None]
            if now >= self._due:
                for member in self._members:
                    member.ask(now)
        finally:
            self._go_on(now, wanted)

    def _go_on(self, now: float, wanted: list[float]) -> None:
        if now >= self._due:
            self._due = next_due(now, self._interval_s)
            self._gap_s = FIRST_LOOK_S
        elif wanted:
            self._gap_s = min(2 * self._gap_s, LONGEST_LOOK_S)
        else:
            self._wait_until(self._due, now)
            return
        self._wait_until(max(min([self._due, now + self._gap_s, *wanted]), now + SHORTEST_LOOK_S), now)
