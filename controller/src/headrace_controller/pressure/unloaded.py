"""The TTFT at which a pool counts as full: its SLO, or learned from what its cells need without load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Fleet, Pools, RowMemory
from headrace_controller.inventory.columns import NEVER
from headrace_controller.lifecycle import CellState
from headrace_controller.settings import PressureSettings
from headrace_shared.signals import INDEX, SIGNALS

Floats = NDArray[np.float64]

TTFT: Final = INDEX["ttft_p95_s"]
INTERVAL_S: Final = 5.0
FORGET_S: Final = 86400.0
"""The least TTFT seen rises to the present one with this time constant: an outlier, or a prompt mix of
the past, does not rule for ever."""
LEAST_S: Final = 0.25
MOST_S: Final = 60.0


class TtftRanges:
    """Per row the TTFT at which it counts as full; the same for all cells of a pool, whatever each of
    them can do, because it is what a client waits for.

    A cell's unloaded TTFT is the least P95 it has shown; a pool's is the median of its READY cells'.
    `high` and `low` are the signal's range, for cells of which nothing is known; `slos` are by model,
    in seconds, and one that is not above `low` cannot be told from it and is not used.
    """

    def __init__(
        self, settings: PressureSettings, slos: Mapping[str, float], low: float, high: float
    ) -> None:
        override = settings.signals.get(SIGNALS[TTFT].name)
        self._learn = settings.learn_ttft and (override is None or override.high is None)
        self._slo = {model: slo_s for model, slo_s in slos.items() if slo_s > low}
        self._factor = settings.ttft_factor
        self._low, self._high = low, high
        self._least = RowMemory({"ttft": np.nan})
        self._looked_at = NEVER
        self._of: tuple[Pools, int] | None = None
        self._found: Floats = np.zeros(0)

    def find(self, fleet: Fleet, ttft: Floats, now: float) -> Floats | None:
        """(n,) highs in seconds; None where all have the signal's own. `ttft` (n,) are the measured
        ones, NaN = absent."""
        if not self._learn and not self._slo:
            return None
        of = (fleet.pools(), fleet.rows_version)
        due = now - self._looked_at >= INTERVAL_S
        if due or self._of is None or self._of[0] is not of[0] or self._of[1] != of[1]:
            self._least.follow(fleet)
            if due:
                self._watch(ttft, now)
            self._found, self._of = self._highs(fleet, of[0]), of
        return self._found

    def least(self, fleet: Fleet) -> Floats:
        """(n,): the unloaded TTFTs, s; NaN = not known."""
        self._least.follow(fleet)
        least: Floats = self._least["ttft"]
        return least

    def record(self, fleet: Fleet, row: int) -> float:
        """A row's unloaded TTFT, s; NaN = not known."""
        self._least.follow(fleet)
        return float(self._least["ttft"][row])

    def restore(self, fleet: Fleet, row: int, unloaded_s: float) -> None:
        """Go on from a record of the row's cell."""
        self._least.follow(fleet)
        self._least["ttft"][row] = unloaded_s
        self._of = None

    def _watch(self, ttft: Floats, now: float) -> None:
        least, known = self._least["ttft"], ~np.isnan(ttft)
        elapsed = max(0.0, now - self._looked_at) if self._looked_at != NEVER else 0.0
        self._looked_at = now
        rise = 1.0 - np.exp(-elapsed / FORGET_S)
        risen = least + rise * (ttft - least)
        least[known] = np.fmin(risen, ttft)[known]

    def _highs(self, fleet: Fleet, pools: Pools) -> Floats:
        """A row in several pools is held to the strictest."""
        per_pool = np.full(len(pools.models), self._high)
        if self._learn:
            ready = fleet.state[pools.row] == CellState.READY
            unloaded = pools.medians(self._least["ttft"][pools.row], ready)
            learned = np.clip(unloaded * self._factor, max(LEAST_S, 1.01 * self._low), MOST_S)
            per_pool = np.where(np.isnan(learned), per_pool, learned)
        for model, slo_s in self._slo.items():
            if model in pools.index:
                per_pool[pools.index[model]] = slo_s
        highs = np.full(fleet.size, np.inf)
        np.minimum.at(highs, pools.row, per_pool[pools.pool])
        return np.where(np.isinf(highs), self._high, highs)
