"""An engine's figures at one moment, and the averages behind them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineStats:
    """An engine now.

    `busy`, `tensor` and `bandwidth` are averages over about the last second, [0, 1]: the share of
    time in a step, and of time with tensor pipes and memory interface at work. The token and
    pre-emption counts only grow; `prompt_tokens` counts a prompt once, with its first token.
    `prefix_queries` and `prefix_hits` are tokens asked of and found in the prefix cache.
    """

    running: int
    waiting: int
    kv_fill: float
    kv_blocks_used: int
    kv_blocks: int
    preemptions: int
    prompt_tokens: int
    generation_tokens: int
    steps: int
    busy: float
    tensor: float
    bandwidth: float
    prefix_queries: int = 0
    prefix_hits: int = 0


Levels = tuple[float, float, float]
IDLE: Levels = (0.0, 0.0, 0.0)


class Activity:
    """Exponential averages of (busy, tensor, bandwidth) over piecewise constant levels."""

    def __init__(self, time_constant_s: float = 0.5) -> None:
        self._time_constant_s = time_constant_s
        self._levels = IDLE
        self._at: float | None = None

    def record(self, started_at: float, ended_at: float, levels: Levels) -> None:
        """Take in a step; the time since the one before counts as idle."""
        self._levels = self._advanced(started_at, ended_at, levels)
        self._at = ended_at

    def read(self, now: float, started_at: float | None = None, levels: Levels = IDLE) -> Levels:
        """The averages at `now`; a step still under way is given by its start and levels."""
        return self._advanced(now if started_at is None else started_at, now, levels)

    def _advanced(self, started_at: float, now: float, levels: Levels) -> Levels:
        """Idle from the last record to the start, then at `levels`; written out, for it is done often."""
        since = started_at if self._at is None else self._at
        idle_s, busy_s = started_at - since, now - started_at
        constant = self._time_constant_s
        idle = math.exp(-idle_s / constant) if idle_s > 0 else 1.0
        keep = math.exp(-busy_s / constant) if busy_s > 0 else 1.0
        old, gain = idle * keep, 1.0 - keep
        busy, tensor, bandwidth = self._levels
        return (
            busy * old + levels[0] * gain,
            tensor * old + levels[1] * gain,
            bandwidth * old + levels[2] * gain,
        )
