"""A virtual clock, and what is to happen on it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

START_S = 1_000.0
"""Where virtual time begins; its zero means nothing, as a monotonic clock's."""
WALL_NS = 1_700_000_000_000_000_000

Action = Callable[[float, Any], None]


class VirtualClock:
    """Implements headrace_shared.clock.Clock; only the calendar moves it."""

    def __init__(self) -> None:
        self.at = START_S

    def now(self) -> float:
        """Virtual seconds."""
        return self.at

    def wall_ns(self) -> int:
        """A wall clock that agrees with the virtual one."""
        return WALL_NS + int((self.at - START_S) * 1e9)


class Calendar:
    """Actions by their times; those of one moment come in the order in which they were entered."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._entries: list[tuple[float, int, Action, Any]] = []
        self._entered = 0
        self._stopped = False

    def enter(self, at: float, action: Action, subject: Any = None) -> None:
        """Call `action(now, subject)` at a time that has not passed; one in the past is called next."""
        self._entered += 1
        heapq.heappush(self._entries, (at, self._entered, action, subject))

    def stop(self) -> None:
        """End `run` after the action under way."""
        self._stopped = True

    def run(self, until: float) -> None:
        """Let time pass up to and with `until`, or until stopped."""
        entries, clock, pop = self._entries, self.clock, heapq.heappop
        self._stopped = False
        while entries and entries[0][0] <= until:
            at, _, action, subject = pop(entries)
            if at > clock.at:
                clock.at = at
            action(clock.at, subject)
            if self._stopped:
                return
        clock.at = max(clock.at, until)
