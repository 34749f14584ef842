"""Which capability classes a pool has, and which of them a cell serves.

Class k holds the requests that need more than the tokens of class k-1 and no more than its own. A cell
serves its own class and all below: classes are nested, and the smallest one is the whole pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def class_lengths(lengths: Iterable[int | None], most: int) -> tuple[int, ...]:
    """The `max_model_len` of each class, rising; () where the pool is one class.

    `lengths` are the cells', None = not known, which makes no class. With more than `most` (at least 2)
    different ones the closest are taken together: the cells of one that has no class of its own serve
    the next smaller class.
    """
    found = sorted({length for length in lengths if length})
    while len(found) > max(2, most):
        ratios = [larger / smaller for smaller, larger in pairwise(found)]
        closest = ratios.index(min(ratios))
        # The smallest must stay, or its cells would serve nobody.
        del found[closest or 1]
    return tuple(found) if len(found) > 1 else ()


def groups_of(lengths: Sequence[int | None], classes: Sequence[int]) -> Ints:
    """For each cell the greatest class that it serves.

    A cell that does not say its length counts with the largest: what it refuses is the error signal's.
    """
    last = len(classes) - 1
    known = np.array([classes[last] if length is None else length for length in lengths], dtype=np.int64)
    found: Ints = np.maximum(np.searchsorted(np.asarray(classes), known, side="right") - 1, 0)
    return found
