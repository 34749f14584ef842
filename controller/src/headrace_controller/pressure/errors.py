"""The error rate of each cell, by evidence, and its excess over the pool.

The estimate moves with requests, not with time: a cell that failed and gets no more requests
stays known as failing, and the trickle of its weight 1 brings the samples that clear it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Fleet, Pools, RowMemory
from headrace_controller.settings import PressureSettings
from headrace_shared.signals import INDEX

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_RATE: Final = INDEX["error_rate"]
_CHANCE: Final = 3.0


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
    """

    def __init__(self, settings: PressureSettings) -> None:
        self._memory_samples = settings.error_samples
        self._min_samples = settings.error_min_samples
        self._used = RowMemory({"evidence": 0.0}, width=4)
        self._memory = RowMemory(
            {"failed": 0.0, "total": 0.0, "seen": 0.0, "plain": np.nan, "counted": False}
        )

    def estimate(self, fleet: Fleet) -> Floats:
        """(n,): the failed share, NaN where too little was seen. Takes in new evidence once."""
        self._used.follow(fleet)
        self._memory.follow(fleet)
        self._take_in(fleet.evidence[: fleet.size])
        memory, totals = self._memory, fleet.totals[: fleet.size]
        rate = fleet.signals[: fleet.size, _RATE]
        told_plain = ~np.isnan(rate)
        memory["plain"][told_plain] = np.clip(rate[told_plain], 0.0, 1.0)
        enough = memory["seen"] >= self._min_samples
        share = np.divide(memory["failed"], memory["total"], out=np.full(fleet.size, np.nan), where=enough)
        # An agent that has just returned has told no totals yet: that takes nothing back.
        told = ~np.isnan(totals).all(axis=1)
        memory["counted"][told] = ~np.isnan(totals[told, 1:]).all(axis=1)
        return np.where(memory["counted"], share, memory["plain"])

    def record(self, fleet: Fleet, row: int) -> ErrorRecord:
        """What is known of one row, as of the last estimate."""
        self._memory.follow(fleet)
        memory = self._memory
        return ErrorRecord(
            failed=float(memory["failed"][row]),
            total=float(memory["total"][row]),
            seen=float(memory["seen"][row]),
            plain=float(memory["plain"][row]),
            counted=bool(memory["counted"][row]),
        )

    def restore(self, fleet: Fleet, row: int, record: ErrorRecord) -> None:
        """Go on from a record of the row's cell."""
        self._memory.follow(fleet)
        for name in ("failed", "total", "seen", "plain", "counted"):
            self._memory[name][row] = getattr(record, name)

    def samples(self) -> Floats:
        """(n,): how many equally counted requests the last estimate is worth."""
        most = 2.0 * self._memory_samples - 1.0
        seen = self._memory["seen"]
        return np.where(seen > 0, np.minimum(seen, most), self._memory_samples)

    def _take_in(self, evidence: Floats) -> None:
        """Each new request pushes the older ones back by a factor of 1 - 1/`error_samples`."""
        if np.array_equal(evidence, self._used["evidence"]):
            return
        grown = evidence - self._used["evidence"]
        self._used["evidence"][:] = evidence
        total, failed = grown.sum(axis=1), grown[:, 1:].sum(axis=1)
        size = self._memory_samples
        keep = (1.0 - 1.0 / size) ** total
        fresh = size * (1.0 - keep)
        share = np.divide(failed, total, out=np.zeros_like(total), where=total > 0)
        memory = self._memory
        memory["failed"][:] = memory["failed"] * keep + share * fresh
        memory["total"][:] = memory["total"] * keep + fresh
        memory["seen"][:] += total


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
    values = estimate[pools.row]
    others = pools.medians_of_others(values, ready[pools.row])
    chance = _CHANCE * np.sqrt(others * (1.0 - others) * 2.0 / samples[pools.row])
    over = np.where(np.isnan(others), 0.0, values - others - chance)
    worst = np.full(len(estimate), -np.inf)
    np.maximum.at(worst, pools.row, np.nan_to_num(over, nan=-np.inf))
    result: Floats = np.where(np.isnan(estimate), np.nan, np.maximum(worst, 0.0))
    return result
