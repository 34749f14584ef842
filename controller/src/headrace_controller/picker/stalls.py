"""Whether an engine computes a prompt just now, by what its running requests generate meanwhile.

Engines say how many requests run and how many wait, but not which of those that run have no first token
yet: a prompt under computation looks like an answer under way. While it is computed the answers beside it
hardly grow, and that is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COUNT_EACH_STEP: Final = frozenset({"vllm"})
"""Kinds of engines that count tokens as they generate them; SGLang and llama.cpp do when an answer ends."""
HARDLY: Final = 0.5
"""Answers that grow by this part of their usual speed, or faster, are not held up."""
RISES: Final = 1.1
"""By so much each reading can raise the usual speed: requests that came and went between two readings make
the others look fast."""
FADES: Final = 0.99
LEAST_S: Final = 0.05
"""Readings that are closer tell nothing."""


@dataclass(slots=True)
class _Seen:
    """The last reading of an engine; `usual` is in tokens a second and running request."""

    at: float
    generated: int
    running: float
    usual: float = 0.0


class Stalls:
    """By slot; times in s, on one clock."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def read(self, slot: int, at: float, generated: int, running: float) -> tuple[float, float]:
        """An engine had generated so many tokens since its start at `at`, and so many requests ran there,
        NaN = not known. Since when it is that this tells of, and how much its answers were held up, 0 to 1;
        0 also where nothing is known."""
        seen = self._seen.get(slot)
        if seen is None or generated < seen.generated:
            self._seen[slot] = _Seen(at, generated, running)
            return at, 0.0
        seconds = at - seen.at
        if seconds < LEAST_S:
            return seen.at, 0.0
        mean, usual, share = (running + seen.running) / 2.0, seen.usual, 0.0
        if mean > 0.0:
            speed = (generated - seen.generated) / seconds / mean
            usual = max(speed if not usual else min(speed, RISES * usual), FADES * usual)
            if running > 0.0 and usual:
                share = max(0.0, 1.0 - speed / (HARDLY * usual))
        self._seen[slot] = _Seen(at, generated, running, usual)
        return seen.at, share

    def forget(self, slot: int) -> None:
        """The slot is nobody's."""
        self._seen.pop(slot, None)
