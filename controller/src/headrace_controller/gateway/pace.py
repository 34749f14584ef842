"""How many of the records are read: all of them, or an even sample above a set rate."""

from __future__ import annotations

import math
from typing import Final

_WINDOW_S: Final = 1.0


class Pace:
    """Chooses every k-th record so that about `limit` a second are read.

    k follows the rate of the last second or so, so that a rush is thinned out evenly and not cut off.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._recent = 0.0
        self._at = float("-inf")
        self._next = 0

    def choose(self, count: int, now: float) -> range:
        """The indices to read of `count` records that came now; each stands for `range.step` of them."""
        self._fade(now)
        self._recent += count
        stride = self._stride()
        # Where the last choice left off, so that small messages are sampled as evenly as large ones.
        first = min(self._next, stride - 1)
        chosen = range(first, count, stride)
        self._next = first - count if not chosen else chosen[-1] + stride - count
        return chosen

    def share(self, now: float) -> float:
        """The share of the records that is read now, 1 = all of them."""
        self._fade(now)
        return 1.0 / self._stride()

    def _fade(self, now: float) -> None:
        elapsed = max(0.0, now - self._at)
        self._at = max(now, self._at)
        self._recent *= math.exp(-elapsed / _WINDOW_S)

    def _stride(self) -> int:
        return max(1, math.ceil(self._recent / (self._limit * _WINDOW_S)))
