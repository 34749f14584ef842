"""Calls that wait, each at most as long as all of its kind: the first that came is the first to run out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from headrace_shared.clock import Clock

LEAST_S: Final = 0.01
"""Alarms are no closer: each may end many."""

Each = TypeVar("Each")


class Waiting(Generic[Each]):
    """Ends what waits for longer than `seconds`, by one alarm for all."""

    def __init__(self, clock: Clock, seconds: float, end: Callable[[Each], None]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end = end
        self._since: dict[Each, float] = {}
        self._alarm: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    def add(self, each: Each) -> None:
        """It waits from now on."""
        self._since[each] = self._clock.now()
        if self._alarm is None:
            self._set(self._seconds)

    def discard(self, each: Each) -> None:
        """It waits no longer."""
        self._since.pop(each, None)

    def end(self) -> None:
        """End all."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for each in tuple(self._since):
            self._end(each)
        self._since.clear()

    def _set(self, seconds: float) -> None:
        self._alarm = asyncio.get_running_loop().call_later(max(seconds, LEAST_S), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._clock.now()
        over = []
        for each, since in self._since.items():
            if now - since < self._seconds:
                break
            over.append(each)
        for each in over:
            self.discard(each)
            self._end(each)
        if self._since:
            self._set(next(iter(self._since.values())) + self._seconds - now)
