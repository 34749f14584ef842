"""Whose fault a refusal is: the cell's, or the client's that sent the request.

A client is judged by what it meets elsewhere in the pool: the share of its requests that other cells
refuse is the client's own doing, and only the rest of a refusal speaks against the cell. Of a client
that no other cell of the pool knows, a cell is charged with a few refusals only, so that one client
which is bound to a cell cannot evict it.

Clients fall into a fixed number of slots. Two that share one are judged together, and which do so
nobody outside knows, because the hash is another in each process.
"""

from __future__ import annotations

from array import array
from typing import Final

SLOTS: Final = 64
MAX_POOLS: Final = 4096
MAX_POOLS_OF_A_CELL: Final = 256
EPOCH_S: Final = 60.0
KNOWN_ELSEWHERE: Final = 3.0
CHARGED: Final = 2.0
"""So many refusals of a client that is not known elsewhere count, in each epoch or two."""


class _Table:
    """Requests and refusals by slot; both are halved with each epoch."""

    __slots__ = ("epoch", "refused", "requests")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.requests = array("d", bytes(8 * SLOTS))
        self.refused = array("d", bytes(8 * SLOTS))

    def fade(self, epoch: int) -> None:
        if epoch > self.epoch:
            factor = 0.5 ** min(epoch - self.epoch, 64)
            self.requests = array("d", [each * factor for each in self.requests])
            self.refused = array("d", [each * factor for each in self.refused])
            self.epoch = epoch

    def add(self, slot: int, refused: bool) -> None:
        self.requests[slot] += 1.0
        self.refused[slot] += refused


class Clients:
    """Remembers, for each pool and each cell in it, what clients met there. Bounded by the cells, which
    are to be forgotten when they are gone."""

    def __init__(self) -> None:
        self._pools: dict[str, _Table] = {}
        self._cells: dict[str, dict[str, _Table]] = {}

    def charge(self, pool: str, cell: str, client: str, refused: bool, now: float) -> float:
        """Take in one request; which part of it, 0 to 1, speaks against the cell if it was refused."""
        epoch = int(now // EPOCH_S)
        whole = _table(self._pools, pool, epoch, MAX_POOLS)
        own = _table(self._cells.setdefault(cell, {}), pool, epoch, MAX_POOLS_OF_A_CELL)
        slot = hash(client) % SLOTS
        part = _charge(whole, own, slot) if refused else 0.0
        whole.add(slot, refused)
        own.add(slot, refused)
        return part

    def forget(self, cell: str) -> None:
        """Drop what is known of a cell that is gone."""
        self._cells.pop(cell, None)


def _charge(whole: _Table, own: _Table, slot: int) -> float:
    elsewhere = whole.requests[slot] - own.requests[slot]
    if elsewhere >= KNOWN_ELSEWHERE:
        refused = max(0.0, whole.refused[slot] - own.refused[slot])
        return max(0.0, 1.0 - refused / elsewhere)
    return 1.0 if own.refused[slot] < CHARGED else 0.0


def _table(tables: dict[str, _Table], pool: str, epoch: int, most: int) -> _Table:
    table = tables.get(pool)
    if table is None:
        if len(tables) >= most:
            del tables[next(iter(tables))]
        table = tables[pool] = _Table(epoch)
    table.fade(epoch)
    return table
