"""The `headroom` projection: what each cell has left, relative to the best of its pool."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.settings import ProjectionSettings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Keeps ratios defined where every cell of a pool is at pressure 1 or at the start of its ramp.
LEAST_HEADROOM: Final = 1e-6
LEAST_RAMP: Final = 1e-3
# In arrays: numpy takes longer to make one of a number than to go through nine cells with it.
SOME_HEADROOM: Final = np.array(LEAST_HEADROOM)
SOME_RAMP: Final = np.array(LEAST_RAMP)
ONE: Final = np.array(1.0)


def headroom(
    pressure: Floats,
    ramp: Floats,
    pool: Ints,
    pools: int,
    settings: ProjectionSettings,
    reach: Floats | None = None,
) -> Ints:
    """Weights 1 … `max_weight` for m members of pools: headroom relative to the pool's best.

    `pressure` (G, m) in [0, 1]; `ramp` (m,) in [0, 1], 1 = fully ramped; `pool` (m,) is each
    member's pool; `reach` (G, m) is what paths leave, None = all of everyone. Headroom is 1 - pressure,
    sharpened and scaled by the ramp and the reach; the best of each
    pool gets `max_weight`, so a pool that ramps as a whole keeps its shares. A cell's weight never
    rises with its pressure, and the order of members does not matter.
    """
    if not len(pool):
        return np.zeros(pressure.shape, dtype=np.int64)
    room = rooms(pressure, ramp, settings.sharpness)
    if reach is not None:
        room *= reach
    room *= settings.max_weight / best_of(room, pool, pools)
    weights: Ints = np.maximum(np.rint(room), ONE).astype(np.int64)
    return weights


def rooms(pressure: Floats, ramp: Floats, sharpness: float) -> Floats:
    """(G, m): sharpened headroom of which the ramp's part is in force."""
    room: Floats = np.maximum(1.0 - pressure, SOME_HEADROOM) ** sharpness
    room *= np.maximum(ramp, SOME_RAMP)
    return room


def best_of(values: Floats, pool: Ints, pools: int) -> Floats:
    """(G, m) → (G, 1) or (G, m): the greatest value of each member's pool."""
    if pools == 1:
        one: Floats = values.max(axis=1, keepdims=True)
        return one
    best = np.full((pools, values.shape[0]), -np.inf)
    np.maximum.at(best, pool, values.T)
    return best.T[:, pool]


def ramps(ready_since: Floats, now: float, ramp_s: float) -> Floats:
    """(m,) in [0, 1]: how far each cell's ramp has come; 1 everywhere where `ramp_s` is 0."""
    if ramp_s == 0:
        return np.ones(len(ready_since))
    ramp: Floats = np.minimum(np.maximum((now - ready_since) / ramp_s, 0.0), 1.0)
    return ramp
