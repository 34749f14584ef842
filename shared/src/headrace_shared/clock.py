"""The only module that reads a clock; everything else is handed `now` or a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now(self) -> float:
        """Seconds on a clock that never steps; its zero means nothing."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch, for identities and for people."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> float:
        return time.monotonic()

    def wall_ns(self) -> int:
        return time.time_ns()
