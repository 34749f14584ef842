"""Scorers, by name: the weighted mean over the signals that are present."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.pressure.ranges import CELLS, Ranges

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Scorer = Callable[[Ranges], Floats]
"""From the ranges in force to the weight of each of the ten signals; 0 = not looked at."""


def eight_signals(ranges: Ranges) -> Floats:
    """The engine's and the GPU's signals; the network is not looked at."""
    weight = ranges.weight.copy()
    weight[CELLS:] = 0.0
    return weight


def ten_signals(ranges: Ranges) -> Floats:
    """All signals of the catalogue."""
    return ranges.weight.copy()


SCORERS: Final[Mapping[str, Scorer]] = MappingProxyType({"v2": eight_signals, "v3": ten_signals})


def score(cell: Floats, path: Floats, weight: Floats) -> Floats:
    """(G, n): weighted mean of normalised signals, renormalised over those present.

    `cell` is (n, 8), `path` is (G, n, 2), `weight` is (10,). A NaN leaves its own cell's mean to
    the signals that are left and touches no other cell; with none left the mean is NaN.
    """
    cell_sum, cell_weight = _sums(cell, weight[:CELLS])
    path_sum, path_weight = _sums(path, weight[CELLS:])
    total, share = cell_sum + path_sum, cell_weight + path_weight
    mean = np.divide(total, share, out=np.full(total.shape, np.nan), where=share > 0)
    clipped: Floats = np.clip(mean, 0.0, 1.0)
    return clipped


def count_present(cell: Floats, path: Floats, weight: Floats) -> Ints:
    """(G, n): how many signals of a weight above 0 are present; shapes as for `score`."""
    used = weight > 0
    of_cell = (~np.isnan(cell) & used[:CELLS]).sum(axis=-1)
    count: Ints = of_cell + (~np.isnan(path) & used[CELLS:]).sum(axis=-1)
    return count


def saturate(mean: Floats, saturating: Floats) -> Floats:
    """Pressure from the mean and a signal whose top means that the cell fails its purpose.

    `saturating` is normalised, NaN = nothing known against the cell.
    """
    pressure: Floats = 1.0 - (1.0 - mean) * (1.0 - np.where(np.isnan(saturating), 0.0, saturating))
    return pressure


def _sums(values: Floats, weight: Floats) -> tuple[Floats, Floats]:
    present = ~np.isnan(values)
    return np.where(present, values, 0.0) @ weight, present @ weight
