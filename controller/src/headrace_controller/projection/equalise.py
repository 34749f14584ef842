"""The `equalise` projection: slow integral feedback on log-weights until pressures are equal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.projection.asked import Asked
from headrace_controller.projection.headroom import LEAST_HEADROOM, LEAST_RAMP, best_of
from headrace_controller.settings import ProjectionSettings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# A pause of the loop (a suspended host, a barrier) must not come out as one great step.
_LONGEST_STEP_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Feedback:
    """One step of the loop, (G, m): `pressure` is what it went by, `aim` what a request meets on average
    in its pool, `step` the change of the log-weight, `log_weight` what came of it, 0 = the most. `room`
    = its exponential times the ramp and the sharpened health, and `best` (G, m) or (G, 1) the pool's."""

    pressure: Floats
    aim: Floats
    step: Floats
    log_weight: Floats
    room: Floats
    best: Floats


class Equaliser:
    """Keeps one log-weight for each membership and gateway.

    A member whose pressure is above that of its pool gives weight away, one below it takes some:
    d(log w)/dt = `gain` x (aim - pressure), as long as the difference is greater than `tolerance`,
    so that a difference which no traffic can even out, such as that of two round trips, does not
    wind up to the floor. For the same reason failed requests and early warnings, which are no load,
    are no part of that pressure: they act at once, as a factor. The aim is the mean weighted by what
    each gets, so a cell that is down to its trickle says little about its pool. Between the bounds of
    a step, the floor (weight 1) and what gateways hold (`anchor`, within `max_change`) nothing winds
    up: a log-weight that may not act does not run away, and turns at once when its error turns.
    """

    def __init__(self, settings: ProjectionSettings) -> None:
        self._settings = settings
        self._floor = -math.log(settings.max_weight)
        self._reach = math.log(settings.max_change)
        self._keys: Ints = np.zeros(0, dtype=np.int64)
        self._log: Floats = np.zeros((0, 0))
        self._free: Flags = np.zeros(0, dtype=np.bool_)
        self._stepped_at = math.inf
        self.feedback: Feedback | None = None

    def step(self, asked: Asked) -> Ints:
        """(G, m): weights 1 … `max_weight`. Only members that are fully ramped and not held are moved,
        and say what their pool's pressure is."""
        pressure, pool, pools = asked.pressure, asked.pool, asked.pools
        log = self._line_up(asked.keys, pool, pressure.shape[0])
        elapsed = min(max(0.0, asked.now - self._stepped_at), _LONGEST_STEP_S)
        self._stepped_at = asked.now
        steady = np.broadcast_to(~asked.held & (asked.ramp >= 1.0), pressure.shape)
        aim = _mean(pressure, np.where(steady, np.exp(log), 0.0), pool, pools)
        error = np.where(steady, np.nan_to_num(aim - pressure), 0.0)
        beyond = np.sign(error) * np.maximum(np.abs(error) - self._settings.tolerance, 0.0)
        # One may fall while another rises: each has half of the reach.
        step = np.clip(self._settings.gain * beyond, -self._reach / 2, self._reach / 2) * elapsed
        if not log.size:
            return np.zeros(pressure.shape, dtype=np.int64)
        log = log + step
        self._log = log = np.maximum(log - best_of(log, pool, pools), self._floor)
        health = np.maximum(asked.health, LEAST_HEADROOM) ** self._settings.sharpness
        factor = np.maximum(asked.ramp, LEAST_RAMP) * health
        self._free = factor >= 1.0
        room = np.exp(log) * factor
        best = best_of(room, pool, pools)
        self.feedback = Feedback(pressure, aim, step, log, room, best)
        most = self._settings.max_weight
        weights: Ints = np.maximum(np.rint(most * room / best), 1.0).astype(np.int64)
        return weights

    def anchor(self, keys: Ints, weights: Ints) -> None:
        """Take note of what gateways hold, (G, m); 0 = nothing yet."""
        in_force = np.log(np.maximum(weights, 1) / self._settings.max_weight)
        if self._keys is not keys:
            known, log = self._align(keys, weights.shape[0])
            self._keys, self._log = keys, np.where(known, log, in_force)
            self._free = np.zeros(len(keys), dtype=np.bool_)
            return
        near = np.clip(self._log, in_force - self._reach, in_force + self._reach)
        # Where a ramp or failures hold the weight down, it says nothing of the log-weight.
        self._log = np.where((weights > 0) & self._free, near, self._log)

    def _line_up(self, keys: Ints, pool: Ints, gateways: int) -> Floats:
        """The log-weights of today's members; who is new begins in the middle of its pool."""
        if self._keys is keys and self._log.shape[0] == gateways:
            return self._log
        known, log = self._align(keys, gateways)
        for number in np.unique(pool[~known]).tolist():
            own = pool == number
            old = log[:, own & known]
            log[:, own & ~known] = np.median(old, axis=1, keepdims=True) if old.size else 0.0
        self._keys, self._log = keys, log
        return log

    def _align(self, keys: Ints, gateways: int) -> tuple[Flags, Floats]:
        log = np.zeros((gateways, len(keys)))
        if not len(self._keys) or self._log.shape[0] != gateways:
            return np.zeros(len(keys), dtype=np.bool_), log
        order = np.argsort(self._keys)
        at = np.searchsorted(self._keys, keys, sorter=order)
        at = order[np.minimum(at, len(order) - 1)]
        known: Flags = self._keys[at] == keys
        log[:, known] = self._log[:, at[known]]
        return known, log


def _mean(values: Floats, weights: Floats, pool: Ints, pools: int) -> Floats:
    """(G, m): the weighted mean of each member's pool; NaN where nobody has a weight."""
    total, share = np.zeros((values.shape[0], pools)), np.zeros((values.shape[0], pools))
    for gateway in range(values.shape[0]):
        total[gateway] = np.bincount(pool, weights[gateway] * values[gateway], minlength=pools)
        share[gateway] = np.bincount(pool, weights[gateway], minlength=pools)
    means = np.divide(total, share, out=np.full(total.shape, np.nan), where=share > 0)
    found: Floats = means[:, pool]
    return found
