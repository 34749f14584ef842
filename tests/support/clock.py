"""A clock that tests own."""

from __future__ import annotations


class FakeClock:
    """Implements headrace_shared.clock.Clock; moves only when told."""

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def wall_ns(self) -> int:
        return 1_700_000_000_000_000_000 + int(self._now * 1e9)

    def advance(self, seconds: float) -> float:
        """Move forward and return the new time."""
        self._now += seconds
        return self._now
