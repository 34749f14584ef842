"""Scorers, by name: the weighted mean over the signals that are present."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Pools
from headrace_controller.pressure.ranges import CELLS, Ranges

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

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


def fill(values: Floats, weight: Floats, pools: Pools, members: Flags) -> Floats:
    """(n, k): `values` of which what is absent is the median of its pool, over the marked rows that
    have it; a row in several pools gets the mean of theirs. What nobody in the pool has, and what
    has no weight (k,), stays NaN.

    A signal left out of one cell's mean would weigh the cell's other signals more than its peers'
    do, and so move traffic although nothing happened to the cell but to its exporter. At its pool's
    median it speaks neither for the cell nor against it: among equals the median is what the cell
    itself would say, whether one exporter is gone or a whole site's. The cell's own last value would
    do as well while it is fresh, and would freeze a moment of load for as long as an exporter is
    gone. Where nobody in the pool has the signal, all are scored without it alike.
    """
    filled = values.copy()
    absent = np.isnan(values)
    count = np.ones(len(values)) @ absent
    for column in np.flatnonzero((count > 0) & (count < len(values)) & (weight > 0)).tolist():
        gaps = absent[:, column]
        filled[gaps, column] = pools.row_medians(values[:, column], members)[gaps]
    return filled


def count_present(cell: Floats, path: Floats, weight: Floats) -> Ints:
    """(G, n): how many signals of a weight above 0 are present; shapes as for `score`."""
    used = (weight > 0).astype(np.float64)
    # A product is many times as fast here as a sum over so short an axis.
    count: Ints = (~np.isnan(cell) @ used[:CELLS] + ~np.isnan(path) @ used[CELLS:]).astype(np.int64)
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
