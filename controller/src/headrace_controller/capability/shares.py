"""The joint weights of nested classes.

A cell's weight says what share of its pool's load it should carry, whatever class that comes in. The
same weights in each class would miss it: the large cells would carry their share of the short requests
and all of the long ones. So each class has a factor for each group of cells (those whose greatest class
is the same), and a cell's weight in a class is its weight times the factor.

The factors come from the demand of each class (its share of the load) and the room of each group (the
sum of its weights): the load per room is made as equal as the classes allow. Requests may go to their own
group or a larger one, so that load can be moved only upwards, and the fairest division is the isotonic
regression of demand over room: where a larger group would carry less per room than a smaller one, the
two are levelled; where it carries more by its own requests alone, it gets none of the smaller ones'.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# A rounding error of room must not look like room.
_TINY = 1e-9


def factors(demand: Floats | None, room: Floats) -> Floats:
    """(K, K): the factor of class k (row) for the cells of group g (column), 0 to 1.

    `demand` (K,) are the shares of the classes' requests in the load, None = not known: then each class
    goes by the weights as they are, and pressure alone balances. `room` (K,) are the sums of the groups'
    weights; 0 where a group has no cell. Row k is 0 for groups below k, unless no group from k on has a
    cell: then it is that of the largest which has. Its greatest factor is 1.
    """
    if not room.any():
        return np.zeros((len(room), len(room)))
    falls = falls_to(room)
    reach = np.triu(np.ones((len(room), len(room)))) * (room > 0)
    if demand is None or demand.sum() <= 0:
        return reach[falls]
    carried: Floats = np.bincount(falls, weights=demand, minlength=len(room)).astype(np.float64)
    made = np.zeros_like(reach)
    for first, end in _blocks(carried, room):
        left = room[first:end] * (carried[first:end].sum() / room[first:end].sum())
        for k in range(end - first - 1, -1, -1):
            open_room = np.divide(left[k:], room[first + k : end], where=room[first + k : end] > 0,
                                  out=np.zeros(len(left) - k))  # fmt: skip
            made[first + k, first + k : end] = open_room
            total = left[k:].sum()
            if total > _TINY:
                left[k:] -= left[k:] * min(1.0, carried[first + k] / total)
    return _normalised(made, reach)[falls]


def falls_to(room: Floats) -> Ints:
    """(K,): the group that the requests of each class come to first: its own, or the next larger that has
    cells, or the largest that has: it can take the more of them, and says clearly what it cannot."""
    there = np.flatnonzero(room > 0)
    found: Ints = there[np.minimum(np.searchsorted(there, np.arange(len(room))), len(there) - 1)]
    return found


def _blocks(carried: Floats, room: Floats) -> list[tuple[int, int]]:
    """Runs of groups that share one level of load per room; the levels rise from run to run."""
    runs: list[tuple[int, int, float, float]] = []
    for group, (load, space) in enumerate(zip(carried.tolist(), room.tolist(), strict=True)):
        runs.append((group, group + 1, load, space))
        # Pool adjacent violators; a group without room goes with the one before it.
        while len(runs) > 1 and _level(runs[-2]) > _level(runs[-1]):
            first, _, load_before, space_before = runs[-2]
            _, end, load_after, space_after = runs[-1]
            runs[-2:] = [(first, end, load_before + load_after, space_before + space_after)]
    return [(first, end) for first, end, _, space in runs if space > 0]


def _level(run: tuple[int, int, float, float]) -> float:
    _, _, load, space = run
    return load / space if space > 0 else -1.0


def _normalised(made: Floats, reach: Floats) -> Floats:
    """Each row by its greatest; a row that nothing is left for goes by the weights as they are."""
    greatest = made.max(axis=1, keepdims=True)
    scaled: Floats = np.where(greatest > _TINY, made / np.maximum(greatest, _TINY), reach)
    return scaled
