"""The `equalise` projection: slow integral feedback on log-weights until pressures are equal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.projection.headroom import LEAST_RAMP, best_of
from headrace_controller.settings import ProjectionSettings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# A pause of the loop (a suspended host, a barrier) must not come out as one great step.
_LONGEST_STEP_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Feedback:
    """One step of the loop, (G, m): `aim` is the pressure that a request meets on average in its pool,
    `step` the change of the log-weight, `log_weight` what came of it, 0 = the most, and `share` = its
    exponential times the ramp, of which `max_weight` times is the target."""

    aim: Floats
    step: Floats
    log_weight: Floats
    share: Floats


class Equaliser:
    """Keeps one log-weight for each membership and gateway.

    A member whose pressure is above that of its pool gives weight away, one below it takes some:
    d(log w)/dt = `gain` x (aim - pressure), as long as the difference is greater than `tolerance`,
    so that a difference which no traffic can even out, such as that of two round trips, does not
    wind up to the floor. The aim is the mean weighted by what each gets, so a cell that is down to
    its trickle says little about its pool. Between the bounds of a step, the floor (weight 1) and
    what gateways hold (`anchor`, within `max_change`) nothing winds up: a log-weight that may not act
    does not run away, and turns at once when its error turns.
    """

    def __init__(self, settings: ProjectionSettings) -> None:
        self._settings = settings
        self._floor = -math.log(settings.max_weight)
        self._reach = math.log(settings.max_change)
        self._keys: Ints = np.zeros(0, dtype=np.int64)
        self._log: Floats = np.zeros((0, 0))
        self._stepped_at = math.inf
        self.feedback: Feedback | None = None

    def step(
        self, keys: Ints, pressure: Floats, ramp: Floats, pool: Ints, pools: int, steady: Flags, now: float
    ) -> Ints:
        """(G, m): weights 1 … `max_weight`. Shapes as for `Asked`; only `steady` members (m,) or (G, m)
        are moved and say what their pool's pressure is."""
        log = self._line_up(keys, pool, pools, pressure.shape[0])
        elapsed = min(max(0.0, now - self._stepped_at), _LONGEST_STEP_S)
        self._stepped_at = now
        steady = np.broadcast_to(steady, pressure.shape)
        aim = _mean(pressure, np.where(steady, np.exp(log), 0.0), pool, pools)
        error = np.where(steady, np.nan_to_num(aim - pressure), 0.0)
        beyond = np.sign(error) * np.maximum(np.abs(error) - self._settings.tolerance, 0.0)
        step = np.clip(self._settings.gain * beyond, -self._reach, self._reach) * elapsed
        log = log + step
        log = np.maximum(log - best_of(log, pool, pools), self._floor) if log.size else log
        self._log = log
        share = np.exp(log) * np.maximum(ramp, LEAST_RAMP)
        self.feedback = Feedback(aim, step, log, share)
        weights: Ints = np.maximum(np.rint(self._settings.max_weight * share), 1.0).astype(np.int64)
        return weights

    def anchor(self, keys: Ints, weights: Ints) -> None:
        """Take note of what gateways hold, (G, m); 0 = nothing yet."""
        if self._keys is not keys:
            known, self._log = self._align(keys, weights.shape[0])
            self._keys = keys
            self._log[:, ~known] = self._floor
        in_force = np.log(np.maximum(weights, 1) / self._settings.max_weight)
        near = np.clip(self._log, in_force - self._reach, in_force + self._reach)
        self._log = np.where(weights > 0, near, self._log)

    def _line_up(self, keys: Ints, pool: Ints, pools: int, gateways: int) -> Floats:
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
