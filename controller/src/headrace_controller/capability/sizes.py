"""Sizes of request bodies in logarithmic buckets, with what became of the requests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.float64]
SizeCounts = Mapping[tuple[str, int], Counts]
"""By (model, max_model_len of the cell that answered): (BUCKETS, 2) requests accepted and refused, since
some start. A refusal is a 400 or 413 that the cell itself answered."""

BUCKETS: Final = 162
ACCEPTED: Final = 0
REFUSED: Final = 1

_FIRST_BYTES: Final = 64
_A_DOUBLING: Final = 8


def bucket_of(size: float) -> int:
    """The bucket of a body of `size` bytes."""
    if size < _FIRST_BYTES:
        return 0
    return min(BUCKETS - 1, 1 + int(math.log2(size / _FIRST_BYTES) * _A_DOUBLING + 1e-9))


EDGES: Final[Counts] = np.concatenate(([0.0], _FIRST_BYTES * 2.0 ** (np.arange(BUCKETS - 1) / _A_DOUBLING)))
"""(BUCKETS,): the least size of each bucket, bytes."""


def no_counts() -> Counts:
    """Counts of nothing."""
    return np.zeros((BUCKETS, 2))
