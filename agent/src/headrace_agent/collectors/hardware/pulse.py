"""How often an exporter collects, learned from the energy counters that always move.

A scrape returns the exporter's last figures, however old, with no time stamp. A live GPU's energy
counter moves at every collection, so the time between two moves is the exporter's interval, and a
counter that stands still for longer than that means old figures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

LEAST_STALE_S = 2.0
STALE_INTERVALS = 2.5
SLOW_S = 2.0
# What the exporter does when nobody tells it otherwise; assumed once it has shown to be slow.
DEFAULT_INTERVAL_S = 30.0
# A longer stillness is an outage, from which no interval is learned.
MOST_INTERVAL_S = 120.0
GAPS_KEPT = 4


class Pulse:
    """Fed with the energy counters of every good read; tells each GPU's figures fresh or stale.

    The interval is the longest of the last few gaps, so that an exporter that turns slow is
    known as slow after one gap and does not flap between fresh and stale.
    """

    def __init__(self, read_interval_s: float) -> None:
        # Gaps are seen in steps of the read interval, so one of a little more than 2 s can be 2 s.
        self._slow_s = SLOW_S + 2 * read_interval_s
        self._least_s = max(LEAST_STALE_S, STALE_INTERVALS * read_interval_s)
        self._energy: dict[str, float] = {}
        self._moved_at: dict[str, float] = {}
        self._gaps: deque[float] = deque(maxlen=GAPS_KEPT)
        self._since: float | None = None
        self._since_move = False
        self._assumed = False

    def take(self, energy: Mapping[str, float], now: float) -> None:
        """Note one good read: energy by GPU, any unit, at `now`."""
        moved = [gpu for gpu, value in energy.items() if self._energy.get(gpu, value) != value]
        new = energy.keys() - self._energy.keys()
        self._moved_at = {gpu: now if gpu in new or gpu in moved else self._moved_at[gpu] for gpu in energy}
        self._energy = dict(energy)
        if moved:
            self._learn(now)
        elif self._since is None and energy:
            self._since = now

    def interrupt(self) -> None:
        """Note a failed read: the next move says nothing about the interval."""
        self._since, self._since_move = None, False

    @property
    def interval_s(self) -> float | None:
        """The exporter's own interval, s; None while unknown."""
        if self._gaps:
            return max(self._gaps)
        return DEFAULT_INTERVAL_S if self._assumed else None

    @property
    def slow(self) -> bool:
        """Whether the exporter collects less often than every 2 s."""
        return (self.interval_s or 0.0) > self._slow_s

    @property
    def limit_s(self) -> float:
        """How long figures may stand still before they are stale, s."""
        return max(self._least_s, STALE_INTERVALS * (self.interval_s or 0.0))

    def judges(self, gpu: str) -> bool:
        """Whether the GPU has a counter to judge it by."""
        return gpu in self._moved_at

    def stale(self, gpu: str, now: float) -> bool:
        """Whether the GPU's figures stand still; never where there is nothing to judge by."""
        moved_at = self._moved_at.get(gpu)
        return moved_at is not None and now - moved_at > self.limit_s

    def _learn(self, now: float) -> None:
        watched = self._since is not None
        if self._since is not None:
            gap = now - self._since
            if self._since_move and gap <= MOST_INTERVAL_S:
                self._gaps.append(gap)
            elif not self._since_move and gap > self._slow_s:
                # This stillness began before it was watched: it shows a slow exporter, not how slow.
                self._assumed = True
        # A move found right after an interruption may be an old one.
        self._since, self._since_move = now, watched
