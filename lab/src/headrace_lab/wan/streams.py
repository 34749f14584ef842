"""When bytes of a TCP stream arrive over a path, if they do. Pure: `now` comes in, draws are seeded."""

from __future__ import annotations

import random
from typing import Final

from headrace_lab.wan.settings import Path

RESEND_S: Final = 0.2
"""TCP's least time until a lost segment is sent again; it doubles with each further loss."""
LONGEST_RESEND_S: Final = 3.2


class StreamDelay:
    """One direction of one connection: nothing is lost for good, and nothing overtakes."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._arrived = 0.0

    def due(self, path: Path, now: float) -> float | None:
        """When what is sent at `now` arrives, in seconds of the same clock; None: the path passes nothing,
        and TCP will try again."""
        if path.down:
            return None
        took_s, resend_s = 0.0, RESEND_S
        while path.loss and self._random.random() < path.loss and took_s < LONGEST_RESEND_S:
            took_s += resend_s
            resend_s = min(2 * resend_s, LONGEST_RESEND_S)
        self._arrived = max(self._arrived, now + took_s + self._delay_s(path))
        return self._arrived

    def _delay_s(self, path: Path) -> float:
        if path.shape == "uniform":
            drawn = path.delay_ms + self._random.uniform(-path.jitter_ms, path.jitter_ms)
        else:
            drawn = max(0.0, self._random.gauss(path.delay_ms, path.jitter_ms))
        return drawn / 1000
