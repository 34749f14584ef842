"""From columns to one pressure a cell and gateway, each tick."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from headrace_controller.inventory import Fleet, Pools, RowMemory
from headrace_controller.inventory.columns import NEVER
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure.early import EarlyWarning
from headrace_controller.pressure.errors import GATEWAY_TRUST_S, ErrorEstimator, ErrorRecord, excess
from headrace_controller.pressure.pressures import Pressures, Smoothing, Times
from headrace_controller.pressure.ranges import CELLS, ERROR, Flags, Floats, resolve_ranges, scale
from headrace_controller.pressure.reach import Reach, Reacher, Seen
from headrace_controller.pressure.score import SCORERS, count_present, fill, saturate, score
from headrace_controller.pressure.settle import Settler
from headrace_controller.pressure.speed import COMPUTE, UNKNOWN, SpeedLearner, SpeedRecord
from headrace_controller.pressure.unloaded import TTFT, TtftRanges
from headrace_controller.settings import PressureSettings
from headrace_shared.signals import GPU_SIGNALS, INDEX

NEUTRAL = 0.5
"""The pressure of a cell of which nothing is known in a pool of which nothing is known."""

LOST = 1.0
"""The loss of a path over which nothing comes back."""

_GPU = np.isin(np.arange(CELLS), [INDEX[name] for name in GPU_SIGNALS])
_ENGINE = ~_GPU


@dataclass(frozen=True, slots=True)
class ScoreRecord:
    """What one cell's pressure depends on besides its figures, to outlive a controller.

    `base` is the settled weighted mean as seen from each gateway, NaN = none yet;
    `unloaded_ttft_s` is the least P95 TTFT that it has shown, NaN = none yet; `speed` is what was learned
    of what it can do; `reach` are the logarithms of its reaches in force, by gateway, NaN = none yet,
    () = not said.
    """

    base: tuple[float, ...]
    errors: ErrorRecord
    unloaded_ttft_s: float = math.nan
    speed: SpeedRecord = UNKNOWN
    reach: tuple[float, ...] = ()


class _Errors(NamedTuple):
    """(n,): failed shares and by how many requests, what is beyond the pool's, and that normalised."""

    estimate: Floats
    samples: Floats
    over: Floats
    scaled: Floats


class PressureModel:
    """Keeps what a pressure depends on besides this tick's columns: smoothed scores, evidence.

    `gateways` is their number; `jump` is the rise of a score past which it is not smoothed, so
    that an emergency is acted on at its full height; `ttft_slos` are those of pools, by model, s;
    for `gateway_trust_s` after gateways told of a cell, its errors are judged by what they saw.
    """

    def __init__(
        self,
        settings: PressureSettings,
        gateways: int,
        jump: float = 1.0,
        ttft_slos: Mapping[str, float] = MappingProxyType({}),
        gateway_trust_s: float = GATEWAY_TRUST_S,
    ) -> None:
        self._settings = settings
        self._gateways = gateways
        self._jump = jump
        self._ranges = resolve_ranges(settings.signals)
        self._weight = SCORERS[settings.scorer](self._ranges)
        self._errors = ErrorEstimator(settings, gateway_trust_s)
        low, high = float(self._ranges.low[TTFT]), float(self._ranges.high[TTFT])
        self._ttft = TtftRanges(settings, ttft_slos, low, high)
        self.early = EarlyWarning(settings.early_warning, settings.stale_after_s)
        self._speed = SpeedLearner()
        # The scorer that does not look at the network leaves it out here too.
        self._reach = Reacher(gateways) if self._weight[CELLS:].any() else None
        self._base = RowMemory({"base": np.nan, "mean": np.nan, "good_at": NEVER}, width=gateways)
        self._settler = Settler(gateways, settings.smoothing_s, settings.settle_s)
        self._last_tick = NEVER

    def tick(self, fleet: Fleet, now: float) -> Pressures:
        """Score every row; `now` must not run backwards (a step back counts as no time)."""
        n, pools = fleet.size, fleet.pools()
        ready = fleet.state[:n] == CellState.READY
        engine_fresh = _engine_fresh(fleet, now, self._settings.stale_after_s)
        raw_cell, raw_path, lost = self._fresh_signals(fleet, now, engine_fresh)
        errors = self._judge_errors(fleet, ready, now)
        ttft_high = self._ttft.find(fleet, raw_cell[:, TTFT], now)
        cell, path = self._scale(raw_cell, raw_path, lost, ttft_high)
        # The estimate outlives its telemetry; it must not make up a quorum by that.
        cell[:, ERROR] = np.where(engine_fresh, errors.scaled, np.nan)
        # What is left of a silent agent's figures grows old piece by piece, and no part is the whole.
        frozen = fleet.held[:n] | fleet.telemetry_lost[:n]
        quorum = (count_present(cell, path, self._weight) >= self._settings.quorum) & ~frozen
        scored_cell, scored_path = self._fill(cell, path, errors.scaled, pools, ready)
        mean = score(scored_cell, scored_path, self._weight)
        smoothing = self._smooth(fleet, mean, quorum, ready, now, frozen)
        reach = self._find_reach(fleet, raw_cell, raw_path, lost, ttft_high, frozen, ~engine_fresh, now)
        early, alerts = self.early.tick(fleet, now)
        added = early.added if early is not None and early.added.any() else None
        return Pressures(
            raw=_pressure(np.where(quorum, mean, smoothing.base), errors.scaled, added),
            pressure=_pressure(smoothing.base, errors.scaled, added),
            quorum=quorum,
            error_estimate=errors.estimate,
            error_samples=errors.samples,
            error_excess=errors.over,
            errors=errors.scaled,
            errors_by_gateways=self._errors.by_gateways,
            base=smoothing.base,
            smoothing=smoothing,
            speeds=self._speed.tick(fleet, raw_cell[:, COMPUTE], ready, now),
            reach=reach,
            early=early,
            alerts=alerts,
            generation=fleet.generation[:n].copy(),
            pools=pools,
            ready=ready,
            ranges=self._ranges,
            ttft_high=ttft_high,
            raw_cell=raw_cell,
            raw_path=raw_path,
            normalised_cell=cell,
            normalised_path=path,
            scored_cell=scored_cell,
            scored_path=scored_path,
            weight=self._weight,
            times=_times(fleet, now),
        )

    def _judge_errors(self, fleet: Fleet, ready: Flags, now: float) -> _Errors:
        estimate, samples = self._errors.estimate(fleet, now), self._errors.samples()
        over = excess(estimate, samples, fleet.pools(), ready)
        scaled = scale(over, self._ranges.low[ERROR], self._ranges.high[ERROR])
        return _Errors(estimate, samples, over, scaled)

    def _scale(
        self, raw_cell: Floats, raw_path: Floats, lost: Flags, ttft_high: Floats | None
    ) -> tuple[Floats, Floats]:
        """(n, 8) and (G, n, 2): what was measured, by its ranges."""
        ranges = self._ranges
        cell = scale(raw_cell, ranges.low[:CELLS], ranges.high[:CELLS])
        if ttft_high is not None:
            cell[:, TTFT] = scale(raw_cell[:, TTFT], ranges.low[TTFT], ttft_high)
        path = scale(raw_path, ranges.low[CELLS:], ranges.high[CELLS:])
        # Nothing comes back over it: that is measured, and the worst a path can be.
        path[lost] = 1.0
        return cell, path

    def _fill(
        self, cell: Floats, path: Floats, errors: Floats, pools: Pools, ready: Flags
    ) -> tuple[Floats, Floats]:
        """What is scored: `cell` and `path` with the gaps filled."""
        scored = fill(cell, self._weight[:CELLS], pools, ready)
        # An excess that is not known yet is none, whatever the others' is.
        scored[:, ERROR] = np.where(np.isnan(errors), 0.0, errors)
        if not np.isnan(path).any():
            return scored, path
        return scored, np.stack([fill(each, self._weight[CELLS:], pools, ready) for each in path])

    def _find_reach(
        self,
        fleet: Fleet,
        raw_cell: Floats,
        raw_path: Floats,
        lost: Flags,
        ttft_high: Floats | None,
        frozen: Flags,
        unread: Flags,
        now: float,
    ) -> Reach | None:
        """What paths leave of each cell; None where it is all of everyone."""
        # Without a TTFT that the pool has learned or was told, nothing says whether a path matters.
        if self._reach is None or ttft_high is None:
            return None
        if not self._reach.due(fleet, now):
            return self._reach.found
        n = fleet.size
        loss = np.where(np.isnan(raw_path[:, :, 0]), np.nan, fleet.loss[:n].T)
        least = self._ttft.least(fleet)
        ttft, compute = raw_cell[:, TTFT], raw_cell[:, COMPUTE]
        seen = Seen(raw_path, loss, lost, ttft, least, compute, ttft_high, frozen, unread)
        return self._reach.look(fleet, seen, fleet.state[:n] == CellState.READY, now)

    def record(self, fleet: Fleet, row: int) -> ScoreRecord:
        """What is known of one row, as of the last tick."""
        self._base.follow(fleet)
        base = self._settler.record(fleet, row)
        errors, unloaded_s = self._errors.record(fleet, row), self._ttft.record(fleet, row)
        none = (math.nan,) * self._gateways
        reach = none if self._reach is None else self._reach.record(fleet, row)
        return ScoreRecord(base, errors, unloaded_s, self._speed.record(fleet, row), reach)

    def restore(self, fleet: Fleet, row: int, record: ScoreRecord, now: float) -> None:
        """Go on from a record of the row's cell; its scores are held from `now` on."""
        self._base.follow(fleet)
        self._base["base"][row] = record.base
        self._base["good_at"][row] = now
        self._settler.restore(fleet, row, record.base)
        self._speed.restore(fleet, row, record.speed)
        if self._reach is not None:
            self._reach.restore(fleet, row, record.reach)
        self._errors.restore(fleet, row, record.errors)
        self._ttft.restore(fleet, row, record.unloaded_ttft_s)
        # The time from here to the first tick is all that its figures are worth beside the record.
        self._last_tick = max(self._last_tick, now)

    def _fresh_signals(self, fleet: Fleet, now: float, engine_fresh: Flags) -> tuple[Floats, Floats, Flags]:
        """(n, 8) and (G, n, 2) raw values, NaN where absent or stale, and which paths (G, n) are
        dead."""
        n, limit = fleet.size, self._settings.stale_after_s
        cell = fleet.signals[:n].copy()
        gpu_stale = _stale(fleet.hardware_read_at[:n], now, limit) | fleet.hardware_stale[:n]
        gpu_stale |= _stale(fleet.telemetry_at[:n], now, limit)
        # Nearly always all is fresh, and to write through a mask is slow.
        if not engine_fresh.all():
            cell[~engine_fresh[:, None] & _ENGINE] = np.nan
        if gpu_stale.any():
            cell[gpu_stale[:, None] & _GPU] = np.nan
        path = np.empty((self._gateways, n, 2))
        path[:, :, 0], path[:, :, 1] = fleet.rtt_ms[:n].T, fleet.jitter_ms[:n].T
        old = _stale(fleet.path_at[:n], now, limit).T
        if old.any():
            path[old] = np.nan
        lost: Flags = (fleet.loss[:n].T >= LOST) & np.isnan(path).all(axis=-1) & ~old
        return cell, path, lost

    def _smooth(
        self, fleet: Fleet, mean: Floats, quorum: Flags, ready: Flags, now: float, frozen: Flags
    ) -> Smoothing:
        """(G, n) bases: the score over time. Without a quorum it is held, and then decays to the
        pool's median; that of a `frozen` cell (n,), whose weight is held, stays as it is."""
        self._base.follow(fleet)
        elapsed = max(0.0, now - self._last_tick)
        self._last_tick = max(now, self._last_tick)
        base, good_at, towards = self._base["base"].T, self._base["good_at"].T, self._base["mean"].T
        # A mean holds from the tick that found it to the next, however far away that is.
        step = _share(elapsed, self._settings.smoothing_s)
        before, aim = base.copy(), towards.copy()
        base += np.where(np.isnan(towards), 0.0, step * (towards - base))
        towards[:] = np.where(quorum, mean, np.nan)
        # Nothing to smooth from, nothing to smooth, or a jump: take the score as it is.
        jumps = quorum & ~(mean - base <= self._jump)
        as_is = quorum if self._settings.smoothing_s == 0 else jumps
        base[:] = np.where(as_is, mean, base)
        good_at[:] = np.where(quorum | frozen, now, good_at)
        settled = self._settler.step(fleet, base, mean, quorum, as_is, elapsed)
        smoothed = base.copy()
        if quorum.all():
            return Smoothing(settled.base, mean, smoothed, before, aim, float(step), as_is, settled)
        medians = np.stack(
            [
                fleet.pools().row_medians(each, ready & ok)
                for each, ok in zip(settled.base, quorum, strict=True)
            ]
        )
        held_out = np.clip(now - good_at - self._settings.hold_s, 0.0, elapsed)
        decays = ~quorum & ~np.isnan(base) & ~np.isnan(medians)
        decayed = np.where(decays, _share(held_out, self._settings.decay_s), 0.0)
        base += decayed * np.where(decays, medians - base, 0.0)
        found = self._settler.drift(decayed, medians)
        known = np.where(np.isnan(found), medians, found)
        known = np.where(np.isnan(known), NEUTRAL, known)
        return Smoothing(known, mean, smoothed, before, aim, float(step), as_is, settled, decayed, medians)


def _pressure(mean: Floats, errors: Floats, added: Floats | None) -> Floats:
    """(G, n): errors take their part of what the mean leaves, and warnings are added."""
    pressure = saturate(mean, errors)
    return pressure if added is None else np.minimum(pressure + added, 1.0)


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


def _times(fleet: Fleet, now: float) -> Times:
    n = fleet.size
    read_at = fleet.engine_read_at[:n].copy(), fleet.hardware_read_at[:n].copy()
    return Times(now, fleet.telemetry_at[:n].copy(), *read_at, fleet.path_at[:n].copy())


def _share(elapsed: Floats | float, constant: float) -> Floats:
    """How far an exponential with this time constant gets in the time; all the way for 0."""
    if constant == 0:
        return np.ones_like(np.asarray(elapsed, dtype=np.float64))
    if isinstance(elapsed, float) and math.isinf(elapsed):
        return np.asarray(1.0)
    return 1.0 - np.exp(-np.asarray(elapsed) / constant)
