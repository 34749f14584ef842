"""Telling luck from change: a pressure that stands still as long as nothing has changed.

Queues are never quiet: under a load that does not change, one cell's pressure swings by a tenth within
seconds, and weights that follow it only pass the luck of the moment on to the next cell. So the
pressure in force is the mean since the last change. A control chart finds the changes: the smoothed
pressure further from the mean than a band of `_JUMP` times its usual swing, or a slower one further
than half of that; the mean then begins anew from there. The band is never wider than a small part of
the headroom: a queue that has come about by luck is a queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Fleet, RowMemory

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_JUMP: Final = 4.0
_SLOW_S: Final = 15.0
# A swing is how far the smoothed pressure gets in this time, as a deviation: by the median of moving
# ranges, which 0.954 is for two draws. After the first few it is nudged up or down, so that a step,
# which is one or two large ranges, is not taken for luck.
_RANGE_S: Final = 5.0
_RANGE: Final = 0.954
_YOUNG: Final = 6.0
_STEP: Final = 0.05
_NUDGE: Final = 0.1
_NUDGE_LEAST: Final = 0.0005
# No change is looked for below this.
_LEAST: Final = 0.01
# Luck or not, a cell whose headroom changes by more than this part is given less or more.
_BAND: Final = 0.07
_PRIOR: Final = 0.03


@dataclass(frozen=True, slots=True)
class Settled:
    """(G, n): the pressures in force and how they came about: before + gain x (mean - before), the
    smoothed one where `taken`, the `slow` one where `shifted`. `swing`: what is luck, as a deviation."""

    base: Floats
    before: Floats
    gain: Floats
    taken: Flags
    shifted: Flags
    slow: Floats
    swing: Floats


class Settler:
    """Keeps the means. `window_s` is the longest that one reaches back, `smoothing_s` the shortest; with
    a window of 0 the smoothed pressure is in force as it is."""

    def __init__(self, gateways: int, smoothing_s: float, window_s: float) -> None:
        self._smoothing_s = max(smoothing_s, 0.1)
        self._window_s = window_s
        fields = {"mean": np.nan, "slow": np.nan, "age": 0.0, "swing": 0.0, "ranges": 0.0, "mark": np.nan}
        self._memory = RowMemory(fields, width=gateways)
        self._marked_s = 0.0

    def step(
        self, fleet: Fleet, smoothed: Floats, mean: Floats, known: Flags, at_once: Flags, elapsed: float
    ) -> Settled:
        """Take in one tick, (G, n): the smoothed pressure, this tick's `mean`, where that is `known`, and
        where it is to be taken whatever the chart says."""
        memory = self._memory
        memory.follow(fleet)
        settled, slow, age = memory["mean"].T, memory["slow"].T, memory["age"].T
        before = settled.copy()
        if self._window_s == 0:
            settled[:] = smoothed
            none, everywhere = np.zeros_like(before), np.ones_like(known)
            found = smoothed.copy()
            return Settled(found, before, none, everywhere, ~everywhere, found, none)
        self._range(smoothed, known, elapsed)
        age += np.where(known, elapsed, 0.0)
        gain = np.minimum(elapsed / np.clip(age, self._smoothing_s, self._window_s), 1.0)
        gain = np.where(known, gain, 0.0)
        aim = np.where(known, mean, 0.0)
        settled += gain * (aim - settled)
        slow += np.where(known, (1.0 - np.exp(-elapsed / _SLOW_S)) * (aim - slow), 0.0)
        swing = memory["swing"].T
        band = np.clip(_JUMP * swing, _LEAST, np.maximum(_BAND * (1.0 - settled), _LEAST))
        taken = (known & (np.abs(smoothed - settled) > band)) | at_once | np.isnan(settled)
        shifted = known & (np.abs(slow - settled) > band / 2) & ~taken
        settled[:] = np.where(taken, smoothed, np.where(shifted, slow, settled))
        slow[:] = np.where(taken, smoothed, slow)
        age[:] = np.where(taken | shifted, 0.0, age)
        return Settled(settled.copy(), before, gain, taken, shifted, slow.copy(), swing.copy())

    def drift(self, share: Floats, towards: Floats) -> Floats:
        """(G, n): the pressures in force after a part of the way to `towards`, for those without a
        quorum."""
        settled = self._memory["mean"].T
        settled += share * (np.nan_to_num(towards) - settled)
        return settled.copy()

    def record(self, fleet: Fleet, row: int) -> tuple[float, ...]:
        """A row's pressures in force, by gateway; NaN = none yet."""
        self._memory.follow(fleet)
        return tuple(self._memory["mean"][row].tolist())

    def restore(self, fleet: Fleet, row: int, settled: tuple[float, ...]) -> None:
        """Go on from a record of the row's cell, as one that has stood for long."""
        memory = self._memory
        memory.follow(fleet)
        memory["mean"][row] = memory["slow"][row] = settled
        memory["age"][row], memory["swing"][row], memory["ranges"][row] = self._window_s, _PRIOR, _YOUNG

    def _range(self, smoothed: Floats, known: Flags, elapsed: float) -> None:
        """Learn how far luck swings, now and then."""
        self._marked_s += elapsed
        memory = self._memory
        swing, ranges, mark = memory["swing"].T, memory["ranges"].T, memory["mark"].T
        if self._marked_s < _RANGE_S:
            return
        self._marked_s = 0.0
        found = known & ~np.isnan(mark)
        ranges += found
        moved = np.abs(smoothed - np.nan_to_num(mark)) / _RANGE
        young = ranges <= _YOUNG
        mean = swing + (np.minimum(moved, _STEP) - swing) / np.maximum(ranges, 1.0)
        nudged = np.where(moved > swing, swing * (1.0 + _NUDGE) + _NUDGE_LEAST, swing * (1.0 - _NUDGE))
        swing[:] = np.where(found, np.where(young, mean, nudged), swing)
        mark[:] = np.where(known, smoothed, np.nan)
