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
        since = started_at if self._at is None else self._at
        idle = self._towards(self._levels, IDLE, started_at - since)
        return self._towards(idle, levels, now - started_at)

    def _towards(self, current: Levels, target: Levels, seconds: float) -> Levels:
        keep = math.exp(-max(0.0, seconds) / self._time_constant_s)
        busy, tensor, bandwidth = (t + (c - t) * keep for c, t in zip(current, target, strict=True))
        return busy, tensor, bandwidth
