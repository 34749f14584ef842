"""From columns to one pressure a cell and gateway, each tick."""

from __future__ import annotations

import math

import numpy as np

from headrace_controller.inventory import Fleet, Pools, RowMemory
from headrace_controller.inventory.columns import NEVER
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure.errors import ErrorEstimator, excess
from headrace_controller.pressure.pressures import Pressures
from headrace_controller.pressure.ranges import CELLS, ERROR, Flags, Floats, normalise, resolve_ranges
from headrace_controller.pressure.score import SCORERS, count_present, saturate, score
from headrace_controller.settings import PressureSettings
from headrace_shared.signals import GPU_SIGNALS, INDEX

NEUTRAL = 0.5
"""The pressure of a cell of which nothing is known in a pool of which nothing is known."""

_GPU = np.array([INDEX[name] for name in GPU_SIGNALS])
_ENGINE = np.setdiff1d(np.arange(CELLS), _GPU)


class PressureModel:
    """Keeps what a pressure depends on besides this tick's columns: smoothed scores, evidence.

    `gateways` is their number; `jump` is the rise of a score past which it is not smoothed, so
    that an emergency is acted on at its full height. Raises ValueError for ranges that are empty.
    """

    def __init__(self, settings: PressureSettings, gateways: int, jump: float = 1.0) -> None:
        self._settings = settings
        self._gateways = gateways
        self._jump = jump
        self._ranges = resolve_ranges(settings.signals)
        self._weight = SCORERS[settings.scorer](self._ranges)
        if not self._weight.any():
            raise ValueError(f"pressure: no signal of scorer {settings.scorer} has a weight above 0")
        self._errors = ErrorEstimator(settings)
        self._base = RowMemory({"base": np.nan, "good_at": NEVER}, width=gateways)
        self._last_tick = NEVER

    def tick(self, fleet: Fleet, now: float) -> Pressures:
        """Score every row; `now` must not run backwards (a step back counts as no time)."""
        n, ranges = fleet.size, self._ranges
        raw_cell, raw_path = self._fresh_signals(fleet, now)
        estimate = self._errors.estimate(fleet)
        ready = fleet.state[:n] == CellState.READY
        over = excess(estimate, self._errors.samples(), fleet.pools(), ready)
        errors = normalise(over, ranges.low[ERROR], ranges.high[ERROR])
        cell = normalise(raw_cell, ranges.low[:CELLS], ranges.high[:CELLS])
        path = normalise(raw_path, ranges.low[CELLS:], ranges.high[CELLS:])
        # The estimate outlives its telemetry; it must not make up a quorum by that.
        cell[:, ERROR] = np.where(_engine_fresh(fleet, now, self._settings.stale_after_s), errors, np.nan)
        quorum = count_present(cell, path, self._weight) >= self._settings.quorum
        # An excess that is not known yet is none: leaving the signal out would weigh the cell's
        # other signals more than its peers', and so move traffic off whoever has had little.
        cell[:, ERROR] = np.where(np.isnan(errors), 0.0, cell[:, ERROR])
        mean = score(cell, path, self._weight)
        base = self._smooth(fleet, mean, quorum, ready, now)
        return Pressures(
            at=now,
            raw=saturate(np.where(quorum, mean, base), errors),
            pressure=saturate(base, errors),
            quorum=quorum,
            error_estimate=estimate,
            error_excess=over,
            error_samples=self._errors.seen(),
            hardware_lost=np.all(np.isnan(raw_cell[:, _GPU]), axis=1),
            saturating=errors,
            base=base,
            raw_cell=raw_cell,
            raw_path=raw_path,
            normalised_cell=cell,
            normalised_path=path,
            weight=self._weight,
            ages=_ages(fleet, now),
        )

    def _fresh_signals(self, fleet: Fleet, now: float) -> tuple[Floats, Floats]:
        """(n, 8) and (G, n, 2) raw values, NaN where absent or stale."""
        n, limit = fleet.size, self._settings.stale_after_s
        cell = fleet.signals[:n].copy()
        gpu_stale = _stale(fleet.hardware_read_at[:n], now, limit) | fleet.hardware_stale[:n]
        silent = _stale(fleet.telemetry_at[:n], now, limit)
        cell[np.ix_(np.flatnonzero(~_engine_fresh(fleet, now, limit)), _ENGINE)] = np.nan
        cell[np.ix_(np.flatnonzero(gpu_stale | silent), _GPU)] = np.nan
        path = np.stack((fleet.rtt_ms[:n].T, fleet.jitter_ms[:n].T), axis=-1)
        path[_stale(fleet.path_at[:n], now, limit).T] = np.nan
        return cell, path

    def _smooth(self, fleet: Fleet, mean: Floats, quorum: Flags, ready: Flags, now: float) -> Floats:
        """(G, n): the score over time. Without a quorum it is held, and then decays to the
        pool's median."""
        self._base.follow(fleet)
        elapsed = max(0.0, now - self._last_tick)
        self._last_tick = max(now, self._last_tick)
        base, good_at = self._base["base"].T, self._base["good_at"].T
        step = _share(elapsed, self._settings.smoothing_s)
        # Nothing to smooth from, or a jump: take the score as it is.
        as_is = quorum & (np.isnan(base) | (mean - base > self._jump))
        smoothed = np.where(as_is, mean, base + step * (mean - base))
        base[:] = np.where(quorum, smoothed, base)
        good_at[:] = np.where(quorum, now, good_at)
        if quorum.all():
            return base.copy()
        medians = np.stack(
            [_row_medians(fleet.pools(), each, ready & ok) for each, ok in zip(base, quorum, strict=True)]
        )
        held_out = np.clip(now - good_at - self._settings.hold_s, 0.0, elapsed)
        towards = _share(held_out, self._settings.decay_s)
        decays = ~quorum & ~np.isnan(base) & ~np.isnan(medians)
        base[:] = np.where(decays, base + towards * (np.nan_to_num(medians) - base), base)
        known = np.where(np.isnan(base), medians, base)
        return np.where(np.isnan(known), NEUTRAL, known)


def _stale(read_at: Floats, now: float, limit: float) -> Flags:
    """True where a figure is known to be older than `limit`; an unknown age is not."""
    stale: Flags = now - read_at > limit
    return stale


def _engine_fresh(fleet: Fleet, now: float, limit: float) -> Flags:
    n = fleet.size
    fresh: Flags = ~(
        _stale(fleet.telemetry_at[:n], now, limit)
        | _stale(fleet.engine_read_at[:n], now, limit)
        | fleet.engine_stale[:n]
    )
    return fresh


def _ages(fleet: Fleet, now: float) -> Floats:
    """(n, 2 + G): ages of the engine's, the GPU's and each path's figures, s; NaN = unknown."""
    n = fleet.size
    telemetry = np.where(np.isfinite(fleet.telemetry_at[:n]), fleet.telemetry_at[:n], np.nan)
    engine = np.where(np.isnan(fleet.engine_read_at[:n]), telemetry, fleet.engine_read_at[:n])
    hardware = np.where(np.isnan(fleet.hardware_read_at[:n]), telemetry, fleet.hardware_read_at[:n])
    ages: Floats = now - np.column_stack((engine, hardware, fleet.path_at[:n]))
    return ages


def _row_medians(pools: Pools, values: Floats, members: Flags) -> Floats:
    """(n,): the median of the members of a row's pools, averaged over its pools; NaN = none."""
    medians = pools.medians(values[pools.row], members[pools.row])[pools.pool]
    known = ~np.isnan(medians)
    count = np.bincount(pools.row[known], minlength=len(values))
    total = np.bincount(pools.row[known], weights=medians[known], minlength=len(values))
    averaged: Floats = np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)
    return averaged


def _share(elapsed: Floats | float, constant: float) -> Floats:
    """How far an exponential with this time constant gets in the time; all the way for 0."""
    if constant == 0:
        return np.ones_like(np.asarray(elapsed, dtype=np.float64))
    if isinstance(elapsed, float) and math.isinf(elapsed):
        return np.asarray(1.0)
    return 1.0 - np.exp(-np.asarray(elapsed) / constant)
