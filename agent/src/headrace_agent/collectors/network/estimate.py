"""Echoes to figures: smoothed round trip, jitter and loss of one path. Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

WINDOW = 20
SMOOTHING_S = 2.0
# So many losses in a row, and the path is dead: what was before them says nothing any more.
DEAD_AFTER = 4
# A round trip cannot outlast the call around it, but for the grain of two clocks; the call can
# outlast the round trip by what another thread takes.
CLOCK_GRAIN_S = 0.001
CLOCK_SLACK_S = 0.020


def credible(rtt_s: float, elapsed_s: float) -> bool:
    """Whether a round trip by the wall clock agrees with the monotonic clock around the call.

    The wall clock can be stepped in between (NTP), which no round trip explains.
    """
    return rtt_s >= 0.0 and -CLOCK_GRAIN_S <= elapsed_s - rtt_s <= CLOCK_SLACK_S


@dataclass(frozen=True, slots=True)
class Estimate:
    """A path's figures; None = unknown, never 0. `loss` is a share, 0 to 1."""

    rtt_ms: float | None = None
    jitter_ms: float | None = None
    loss: float | None = None


class PathEstimator:
    """Takes echoes in the order of their ends; at most WINDOW are kept."""

    def __init__(self) -> None:
        self._echoes: deque[float | None] = deque(maxlen=WINDOW)
        self._smoothed: float | None = None
        self._replied_at = 0.0
        self._lost_in_row = 0

    @property
    def dead(self) -> bool:
        """Whether the path has stopped answering."""
        return self._lost_in_row >= DEAD_AFTER

    @property
    def silent(self) -> bool:
        """Whether not one of the echoes kept was answered."""
        return bool(self._echoes) and all(rtt is None for rtt in self._echoes)

    def reply(self, rtt_ms: float, now: float) -> None:
        """An echo came back after `rtt_ms`; its end is at `now`."""
        self._echoes.append(rtt_ms)
        self._lost_in_row = 0
        if self._smoothed is None:
            self._smoothed = rtt_ms
        else:
            share = 1.0 - math.exp(-max(now - self._replied_at, 0.0) / SMOOTHING_S)
            self._smoothed += share * (rtt_ms - self._smoothed)
        self._replied_at = now

    def lost(self) -> None:
        """An echo did not come back in time."""
        self._echoes.append(None)
        self._lost_in_row += 1
        if self._lost_in_row == DEAD_AFTER:
            self._smoothed = None
            self._echoes = deque([None] * DEAD_AFTER, maxlen=WINDOW)

    def estimate(self) -> Estimate:
        """The figures now. Jitter is the mean difference of consecutive replies in the window."""
        if not self._echoes:
            return Estimate()
        rtts = [rtt for rtt in self._echoes if rtt is not None]
        steps = [abs(b - a) for a, b in pairwise(rtts)]
        return Estimate(
            rtt_ms=self._smoothed,
            jitter_ms=sum(steps) / len(steps) if steps else None,
            loss=(len(self._echoes) - len(rtts)) / len(self._echoes),
        )
