"""The error rate of each cell, by evidence, and its excess over the pool.

The estimate moves with requests, not with time: a cell that failed and gets no more requests
stays known as failing, and the trickle of its weight 1 brings the samples that clear it. So few come
that they must count: successes in a row that one which fails so often would hardly have (`_DOUBT`)
end what was known. An engine that has come back begins anew, for its death was not its successor's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Fleet, Pools, RowMemory
from headrace_controller.pressure.returned import Returned
from headrace_controller.settings import PressureSettings
from headrace_shared.signals import INDEX

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_RATE: Final = INDEX["error_rate"]
_CHANCE: Final = 3.0
_DOUBT: Final = 0.005
_SUREST: Final = 0.4
_UNHEARD: Final = 10.0
"""Failures are told at once, successes when an answer ends: so many may be on their way, and a cell that
failed more often than `_SUREST` counts as that. Eleven successes in a row are asked of the worst."""
GATEWAY_TRUST_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """What is known of one cell's errors, to outlive a controller.

    `failed` of `total` requests, both counted with the weight that their age leaves them; `seen`
    without; `plain` is the last rate that the engine told itself, NaN = none. `counted`: failures
    are counted, so that `plain` does not matter.
    """

    failed: float = 0.0
    total: float = 0.0
    seen: float = 0.0
    plain: float = np.nan
    counted: bool = False


class ErrorEstimator:
    """A failed share per cell over about the last `error_samples` requests.

    4xx, 429 and 5xx all count as failed here, because an engine that must reject what its peers
    accept does it with a 4xx; what clients do wrong everywhere is taken off by `excess`. Where an
    engine reports no counts of failures, its plain `error_rate` signal stands in, and the last
    one known is kept.

    Where gateways have told of a cell within `trust_s`, what they saw counts in place of what its
    agent counts: never both, for they count the same requests.
    """

    def __init__(self, settings: PressureSettings, trust_s: float = GATEWAY_TRUST_S) -> None:
        self._memory_samples = settings.error_samples
        self._min_samples = settings.error_min_samples
        self._trust_s = trust_s
        self._used = RowMemory({"evidence": 0.0, "gateways": 0.0}, width=4)
        self._told = 0
        self.by_gateways: Flags | None = None
        """(n,): whose errors the last estimate judged by what gateways saw; None = nobody's."""
        self._memory = RowMemory(
            {"failed": 0.0, "total": 0.0, "seen": 0.0, "plain": np.nan, "counted": False}
        )
        self._streak = RowMemory({"good": 0.0, "before": 0.0})
        self._returned = Returned()

    def estimate(self, fleet: Fleet, now: float = np.inf) -> Floats:
        """(n,): the failed share, NaN where too little was seen. Takes in new evidence once."""
        self._used.follow(fleet)
        self._memory.follow(fleet)
        self.by_gateways = self._judged(fleet, now)
        self._take_in(fleet)
        back = self._returned.look(fleet)
        if back is not None:
            for name in ("failed", "total", "seen"):
                self._memory[name][back] = 0.0
            self._memory["plain"][back] = np.nan
        memory, totals = self._memory, fleet.totals[: fleet.size]
        rate = fleet.signals[: fleet.size, _RATE]
        told_plain = ~np.isnan(rate)
        memory["plain"][told_plain] = np.clip(rate[told_plain], 0.0, 1.0)
        enough = memory["seen"] >= self._min_samples
        share = np.divide(memory["failed"], memory["total"], out=np.full(fleet.size, np.nan), where=enough)
        # An agent that has just returned has told no totals yet: that takes nothing back.
        told = ~np.isnan(totals).all(axis=1)
        memory["counted"][told] = ~np.isnan(totals[told, 1:]).all(axis=1)
        if self.by_gateways is not None:
            memory["counted"][self.by_gateways] = True
        return np.where(memory["counted"], share, memory["plain"])

    def record(self, fleet: Fleet, row: int) -> ErrorRecord:
        """What is known of one row, as of the last estimate; nothing while its engine is gone."""
        self._memory.follow(fleet)
        if self._returned.gone(fleet, row):
            return ErrorRecord()
        memory = self._memory
        return ErrorRecord(
            failed=float(memory["failed"][row]),
            total=float(memory["total"][row]),
            seen=float(memory["seen"][row]),
            plain=float(memory["plain"][row]),
            counted=bool(memory["counted"][row]),
        )

    def restore(self, fleet: Fleet, row: int, record: ErrorRecord) -> None:
        """Go on from a record of the row's cell. What was counted up to now is in it already."""
        self._memory.follow(fleet)
        self._used.follow(fleet)
        self._used["evidence"][row] = fleet.evidence[row]
        self._used["gateways"][row] = fleet.gateway_evidence[row]
        for name in ("failed", "total", "seen", "plain", "counted"):
            self._memory[name][row] = getattr(record, name)
        self._streak.follow(fleet)
        self._streak["good"][row] = 0.0
        self._streak["before"][row] = _held_against(record.failed, record.total)

    def samples(self) -> Floats:
        """(n,): how many equally counted requests the last estimate is worth."""
        most = 2.0 * self._memory_samples - 1.0
        seen = self._memory["seen"]
        return np.where(seen > 0, np.minimum(seen, most), self._memory_samples)

    def _judged(self, fleet: Fleet, now: float) -> Flags | None:
        if not fleet.gateway_version:
            return None
        judged: Flags = now - fleet.gateway_told_at[: fleet.size] <= self._trust_s
        return judged if judged.any() else None

    def _take_in(self, fleet: Fleet) -> None:
        """Each new request pushes the older ones back by a factor of 1 - 1/`error_samples`."""
        evidence = fleet.evidence[: fleet.size]
        told = fleet.gateway_version != self._told
        if not told and np.array_equal(evidence, self._used["evidence"]):
            return
        grown = evidence - self._used["evidence"]
        self._used["evidence"][:] = evidence
        if self.by_gateways is not None:
            grown[self.by_gateways] = 0.0
        if told:
            self._told = fleet.gateway_version
            seen = fleet.gateway_evidence[: fleet.size]
            grown += seen - self._used["gateways"]
            self._used["gateways"][:] = seen
        total, failed = grown.sum(axis=1), grown[:, 1:].sum(axis=1)
        size = self._memory_samples
        keep = (1.0 - 1.0 / size) ** total
        fresh = size * (1.0 - keep)
        share = np.divide(failed, total, out=np.zeros_like(total), where=total > 0)
        memory = self._memory
        memory["failed"][:] = memory["failed"] * keep + share * fresh
        memory["total"][:] = memory["total"] * keep + fresh
        memory["seen"][:] += total
        self._acquit(fleet, total, failed)

    def _acquit(self, fleet: Fleet, total: Floats, failed: Floats) -> None:
        """End what is known of those who have done well for so long that they must have changed."""
        self._streak.follow(fleet)
        good, before, memory = self._streak["good"], self._streak["before"], self._memory
        at_fault = failed > 0
        good += total
        good[at_fault] = 0.0
        before[at_fault] = _held_against(memory["failed"], memory["total"])[at_fault]
        likely = good * np.log1p(-before)
        changed = (likely < np.log(_DOUBT)) & (before > 0)
        if changed.any():
            memory["failed"][changed], memory["total"][changed] = (
                0.0,
                np.minimum(good, memory["total"])[changed],
            )
            before[changed] = 0.0


def _held_against(failed: Floats | float, total: Floats | float) -> Floats:
    """The failed share that successes in a row are weighed against; shapes as given."""
    return np.asarray(np.minimum(failed / (total + _UNHEARD), _SUREST))


def excess(estimate: Floats, samples: Floats, pools: Pools, ready: Flags) -> Floats:
    """(n,): by how much a cell fails more than the median of its pool's other READY cells, less
    what chance explains: `_CHANCE` standard errors of a cell that is like the others.

    Without that allowance, a client that has most of its requests refused everywhere would shake
    all weights by the luck of the draw; where the others fail nothing it is nothing. `samples`
    (n,) are the requests behind each estimate.

    In a pool of two the better one is the measure of the worse; alone in a pool the excess is 0.
    The worst of its pools counts for a cell in several. NaN where the estimate is NaN.
    """
    if not (estimate > 0).any():
        return np.where(np.isnan(estimate), np.nan, 0.0)
    over = compare(estimate, samples, pools, ready).over
    worst = np.full(len(estimate), -np.inf)
    np.maximum.at(worst, pools.row, np.nan_to_num(over, nan=-np.inf))
    result: Floats = np.where(np.isnan(estimate), np.nan, np.maximum(worst, 0.0))
    return result


class Comparison(NamedTuple):
    """Each membership beside the others of its pool, (m,): the `others`' median, NaN = there are none,
    what `chance` explains, and by how much it is `over` both; NaN where its estimate is."""

    others: Floats
    chance: Floats
    over: Floats


def compare(estimate: Floats, samples: Floats, pools: Pools, ready: Flags) -> Comparison:
    """What `excess` goes by; shapes as there."""
    values = estimate[pools.row]
    others = pools.medians_of_others(values, ready[pools.row])
    chance = _CHANCE * np.sqrt(others * (1.0 - others) * 2.0 / samples[pools.row])
    over = np.where(np.isnan(others), np.where(np.isnan(values), np.nan, 0.0), values - others - chance)
    return Comparison(others, chance, over)
