"""The load's own time line on a clock."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from headrace_shared.clock import Clock


@dataclass(frozen=True, slots=True)
class Timeline:
    """Seconds since the start of a load, which is `start` on the clock."""

    start: float
    clock: Clock

    def now_s(self) -> float:
        """Seconds since the start."""
        return self.clock.now() - self.start

    async def until(self, at_s: float) -> None:
        """Wait for a moment; return at once where it has passed."""
        await asyncio.sleep(max(0.0, at_s - self.now_s()))
