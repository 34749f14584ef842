"""One tick's pressures, and why they are what they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_controller.pressure.ranges import CELLS
from headrace_shared.signals import SIGNALS, Origin

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SignalShare:
    """One signal's part in a pressure; None = absent or stale.

    `raw` is in the signal's unit, `normalised` in [0, 1], `weight` is the share among the signals
    that are scored, `contribution` = weight x what is scored, `age_s` since it was measured. The
    normalised `error_rate` is that of the estimated excess over the pool; that of a path which
    loses everything is 1. What is scored is the normalised value or, where the signal is absent,
    `filled`: the pool's median, 0 for an error excess that is not known.
    """

    name: str
    raw: float | None
    normalised: float | None
    weight: float
    contribution: float
    age_s: float | None
    filled: float | None = None


@dataclass(frozen=True)
class Pressures:
    """n = rows of the fleet, G = gateways; all arrays belong to this snapshot.

    `raw` and `pressure` (G, n) in [0, 1]: this tick's, and smoothed. `quorum` (G, n): enough
    signals were measured. `error_estimate` (n,): failed shares, NaN = not known. `base` (G, n): the
    smoothed weighted mean, before the error excess takes its part of what is left of 1.
    `normalised_…` is what was measured, NaN = absent; `scored_…` is the same with the gaps filled
    as far as they can be.
    """

    raw: Floats
    pressure: Floats
    quorum: Flags
    error_estimate: Floats
    base: Floats
    raw_cell: Floats
    raw_path: Floats
    normalised_cell: Floats
    normalised_path: Floats
    scored_cell: Floats
    scored_path: Floats
    weight: Floats
    ages: Floats

    def explain(self, gateway: int, row: int) -> tuple[SignalShare, ...]:
        """Each signal of the catalogue, for one row as seen from one gateway."""
        raw = np.concatenate((self.raw_cell[row], self.raw_path[gateway, row]))
        normalised = np.concatenate((self.normalised_cell[row], self.normalised_path[gateway, row]))
        scored = np.concatenate((self.scored_cell[row], self.scored_path[gateway, row]))
        weight = np.where(np.isnan(scored), 0.0, self.weight)
        share = weight / weight.sum() if weight.any() else weight
        columns = [self._age_column(column, gateway) for column in range(len(SIGNALS))]
        return tuple(
            SignalShare(
                name=signal.name,
                raw=_known(raw[i]),
                normalised=_known(normalised[i]),
                weight=float(share[i]),
                contribution=float(share[i] * np.nan_to_num(scored[i])),
                age_s=_known(self.ages[row, columns[i]]),
                filled=None if math.isfinite(normalised[i]) else _known(scored[i]),
            )
            for i, signal in enumerate(SIGNALS)
        )

    def _age_column(self, signal: int, gateway: int) -> int:
        if signal >= CELLS:
            return 2 + gateway
        return 1 if SIGNALS[signal].origin is Origin.GPU else 0


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
