"""The `speed` projection: what each cell can do, less what its pressure beyond its pool's takes away."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace_controller.projection.asked import Asked, Flags
from headrace_controller.projection.headroom import ONE, SOME_HEADROOM, SOME_RAMP, Floats, Ints, best_of
from headrace_controller.settings import ProjectionSettings


class Capacity(NamedTuple):
    """What weights came of, (G, m) where nothing else is said.

    `load` is the pressure without errors and warnings, `usual` what is usual in the pool, `relief` what is
    left of the cell for it; room = `speed` x (relief x `health`) to the power of the sharpness, times the
    ramp and the `reach`. Speed and health are (m,), or one number; no reach is 1 for everyone. `best`
    (G, m) or (G, 1) is the pool's greatest room.
    """

    load: Floats
    usual: Floats
    relief: Floats
    speed: Floats | float
    health: Floats
    room: Floats
    best: Floats
    reach: Floats | None = None

    @property
    def whole(self) -> Flags:
        """(G, m): of whom nothing is taken."""
        whole: Flags = (self.relief >= ONE) & (self.health >= ONE)
        return whole


def capacity(asked: Asked, settings: ProjectionSettings) -> Capacity:
    """What m members of pools can take.

    Each is given in proportion to its speed, and less where its pressure is more than `spread` above
    what is usual in its pool: then something is wrong that its speed does not say. A cell that nothing
    tells the speed of has its headroom in that place. What failed requests and early warnings leave
    counts at once and in full, and so does its reach. A cell's part never rises with its pressure, and the
    order of members does not matter.
    """
    load = asked.pressure
    blind = 0 if asked.blind is None else int(np.count_nonzero(asked.blind))
    usual = _usual(asked, settings.spread, blind)
    left = np.maximum(1.0 - load, SOME_HEADROOM)
    relief = left  # where all are blind, for then nothing is usual
    if blind < len(asked.pool):
        borne = np.minimum(usual + settings.spread, ONE)
        relief = np.minimum(left / np.maximum(1.0 - borne, SOME_HEADROOM), ONE)
        if blind and asked.blind is not None:
            relief = np.where(asked.blind, left / np.maximum(1.0 - usual, SOME_HEADROOM), relief)
    health: Floats = np.maximum(asked.health, SOME_HEADROOM)
    room = asked.speed * (relief * health) ** settings.sharpness * np.maximum(asked.ramp, SOME_RAMP)
    if asked.reach is not None:
        room = room * asked.reach
    best = best_of(room, asked.pool, asked.pools)
    return Capacity(load, usual, relief, asked.speed, health, room, best, asked.reach)


def weights_of(found: Capacity, most: int) -> Ints:
    """(G, m): weights 1 … `most`, the best of each pool having the most."""
    weights: Ints = np.maximum(np.rint(most * found.room / found.best), ONE).astype(np.int64)
    return weights


def _usual(asked: Asked, spread: float, blind: int) -> Floats:
    """(G, m): the lower median of each member's pool, so that of two cells the better one is usual; so many
    are `blind`."""
    load, pool, pools = asked.pressure, asked.pool, asked.pools
    if _needs_none(asked, spread, blind):
        return np.zeros(load.shape) if blind else load
    if pools == 1:
        middle = (load.shape[1] - 1) // 2
        ordered = np.partition(load, middle, axis=1)
        return np.broadcast_to(ordered[:, middle : middle + 1], load.shape)
    count = np.bincount(pool, minlength=pools)
    at = np.cumsum(count) - count + (np.maximum(count, 1) - 1) // 2
    ordered = np.stack([each[np.lexsort((each, pool))] for each in load])
    usual: Floats = ordered[:, at[pool]]
    return usual


def _needs_none(asked: Asked, spread: float, blind: int) -> bool:
    """Whether the weights are the same whatever is usual: a median of ten thousand takes its time.

    Where all are blind it cuts out of each pool's ratios, and where all are near each other it takes
    nothing from anybody.
    """
    if blind:
        return blind == len(asked.pool)
    return bool(asked.pressure.max() - asked.pressure.min() <= spread)
