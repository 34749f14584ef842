"""The warm-start barrier: a young controller publishes nothing until it knows its fleet.

Until it opens, Envoys keep what they hold, so a restart never shows them an emptier fleet only
because not every agent has reconnected yet.
"""

from __future__ import annotations


class Barrier:
    """Opens once and stays open.

    With `kept_nodes`, the nodes of the snapshot that a controller before this one kept: opens
    when all of them were heard, or `barrier_s` after the start. Without (a first start, or a lost
    disk): `barrier_s` after the first agent was heard, because agents reconnect within 2 s.
    While no agent at all was heard it stays shut either way: an empty fleet is worth no push.
    """

    def __init__(self, barrier_s: float, now: float, kept_nodes: frozenset[str] | None = None) -> None:
        self._barrier_s = barrier_s
        self._started = now
        self._kept_nodes = kept_nodes
        self._first_heard: float | None = None
        self._open = False

    def open(self, heard: frozenset[str], now: float) -> bool:
        """Take the nodes heard so far; True from the moment it opens, for ever."""
        if heard and self._first_heard is None:
            self._first_heard = now
        self._open = self._open or self._may_open(heard, now)
        return self._open

    def _may_open(self, heard: frozenset[str], now: float) -> bool:
        if self._first_heard is None:
            return False
        if self._kept_nodes:
            return self._kept_nodes <= heard or now - self._started >= self._barrier_s
        return now - self._first_heard >= self._barrier_s
