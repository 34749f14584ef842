"""One tick's pressures, and why they are what they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Pools
from headrace_controller.pressure.early import Alert, Warnings
from headrace_controller.pressure.ranges import Ranges
from headrace_controller.pressure.reach import Reach
from headrace_controller.pressure.settle import Settled
from headrace_controller.pressure.speed import Speeds
from headrace_controller.pressure.unloaded import TTFT
from headrace_shared.signals import SIGNALS, Origin

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SignalShare:
    """One signal's part in a pressure; None = absent or stale.

    `raw` is in the signal's unit, `normalised` in [0, 1] by the range `low` … `high`, `weight` is the
    share among the signals that are scored, `contribution` = weight x what is scored, `age_s` since it
    was measured. The normalised `error_rate` is that of the estimated excess over the pool; that of a
    path which loses everything is 1. What is scored is the normalised value or, where the signal is
    absent, `filled`: the pool's median, 0 for an error excess that is not known.
    """

    name: str
    raw: float | None
    normalised: float | None
    weight: float
    contribution: float
    age_s: float | None
    filled: float | None = None
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True, slots=True)
class Smoothing:
    """How the means in force came about, (G, n). `mean` is this tick's. smoothed = before + step x (aim -
    before), `aim` being the mean of the tick before; the mean itself where `as_is`. `settled` says what
    became of that; without a quorum it decays: base = settled + decayed x (median - settled), or is
    the median where there is nothing else."""

    base: Floats
    mean: Floats
    smoothed: Floats
    before: Floats
    aim: Floats
    step: float
    as_is: Flags
    settled: Settled
    decayed: Floats | None = None
    median: Floats | None = None


class Times(NamedTuple):
    """When all figures were read, on the controller's clock: those of beats (n,), of the engine and the GPU
    in them (n,), and of paths (n, G); NaN = not said."""

    now: float
    telemetry: Floats
    engine: Floats
    hardware: Floats
    path: Floats

    def ages(self, row: int, gateway: int) -> dict[Origin, float]:
        """How old a row's figures are, s; NaN = unknown; as old as the beat where they do not say."""
        telemetry = float(self.telemetry[row])
        beat = telemetry if math.isfinite(telemetry) else math.nan
        engine, hardware = float(self.engine[row]), float(self.hardware[row])
        return {
            Origin.ENGINE: self.now - (beat if math.isnan(engine) else engine),
            Origin.GPU: self.now - (beat if math.isnan(hardware) else hardware),
            Origin.NETWORK: self.now - float(self.path[row, gateway]),
        }


@dataclass(frozen=True)
class Pressures:
    """n = rows of the fleet, G = gateways; all arrays belong to this snapshot.

    `raw` and `pressure` (G, n) in [0, 1]: this tick's, and smoothed. `quorum` (G, n): enough
    signals were measured. `error_estimate` (n,): failed shares by `error_samples` requests, and
    `error_excess` their excess over the pool, NaN = not known; `errors` (n,) is that normalised;
    `errors_by_gateways` (n,): whose are judged by what gateways saw, None = nobody's.
    `base` (G, n): the settled weighted mean, before the error excess takes its part of what is left of
    1, and `early` warnings are added; `smoothing` says how it came about. `speeds` is
    what cells can do, as learned, and `reach` what paths leave of them, None = all of everyone.
    `alerts` began or ended.
    `normalised_…` is what was measured, NaN = absent; `scored_…` is the same with the gaps filled
    as far as they can be. `ttft_high` (n,) where it is not the range's. `generation` (n,) tells
    whether a row is still the same cell's.
    """

    raw: Floats
    pressure: Floats
    quorum: Flags
    error_estimate: Floats
    error_samples: Floats
    error_excess: Floats
    errors: Floats
    errors_by_gateways: Flags | None
    base: Floats
    smoothing: Smoothing
    speeds: Speeds
    reach: Reach | None
    early: Warnings | None
    alerts: tuple[Alert, ...]
    generation: Ints
    pools: Pools
    ready: Flags
    ranges: Ranges
    ttft_high: Floats | None
    raw_cell: Floats
    raw_path: Floats
    normalised_cell: Floats
    normalised_path: Floats
    scored_cell: Floats
    scored_path: Floats
    weight: Floats
    times: Times

    def load(self) -> Floats:
        """(G, n): the smoothed means, not settled; where there is none, what is in force."""
        smoothed = self.smoothing.smoothed
        return np.where(np.isnan(smoothed), self.base, smoothed)

    def health(self) -> Floats:
        """(n,) in [0, 1]: what failed requests and early warnings leave of each cell."""
        health: Floats = 1.0 - np.fmax(self.errors, 0.0)  # fmax takes what is a number
        return health if self.early is None else health * np.maximum(1.0 - self.early.added, 0.0)

    def explain(self, gateway: int, row: int) -> tuple[SignalShare, ...]:
        """Each signal of the catalogue, for one row as seen from one gateway."""
        raw = np.concatenate((self.raw_cell[row], self.raw_path[gateway, row]))
        normalised = np.concatenate((self.normalised_cell[row], self.normalised_path[gateway, row]))
        scored = np.concatenate((self.scored_cell[row], self.scored_path[gateway, row]))
        weight = np.where(np.isnan(scored), 0.0, self.weight)
        share = weight / weight.sum() if weight.any() else weight
        ages = self.times.ages(row, gateway)
        high = self.ranges.high.copy()
        if self.ttft_high is not None:
            high[TTFT] = self.ttft_high[row]
        return tuple(
            SignalShare(
                name=signal.name,
                raw=_known(raw[i]),
                normalised=_known(normalised[i]),
                weight=float(share[i]),
                contribution=float(share[i] * np.nan_to_num(scored[i])),
                age_s=_known(ages[signal.origin]),
                filled=None if math.isfinite(normalised[i]) else _known(scored[i]),
                low=float(self.ranges.low[i]),
                high=float(high[i]),
            )
            for i, signal in enumerate(SIGNALS)
        )


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
