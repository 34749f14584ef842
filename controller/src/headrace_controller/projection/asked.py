"""What a projection is asked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Asked(NamedTuple):
    """m members of pools, as seen from G gateways, for whom weights are asked.

    `keys` (m,) stay with a membership for its life; the same array means the same members. `pressure`
    (G, m) in [0, 1]; `ramp` (m,) in [0, 1], 1 = fully ramped; `pool` (m,) numbers of `pools` pools;
    `held` (m,) or (G, m) keep what they have whatever comes of it. `health` (m,) in [0, 1] is what
    failed requests and early warnings leave, where it is not in the pressure. `speed` (m,) is what
    each can do in proportion to its pool, and `blind` (m,) are those of which nothing tells it, None =
    nobody. `reach` (G, m) is what its path leaves of each, None = all of everyone.
    """

    keys: Ints
    pressure: Floats
    ramp: Floats
    pool: Ints
    pools: int
    held: Flags
    now: float
    health: Floats | float = 1.0
    speed: Floats | float = 1.0
    blind: Flags | None = None
    reach: Floats | None = None
