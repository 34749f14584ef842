"""What an explanation is made of: every number between a cell's figures and its weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace_controller.pressure import SignalShare


@dataclass(frozen=True, slots=True)
class ErrorTerm:
    """The failed share by about `samples` requests, the median of the `others` in its pool, what
    `chance` explains, the `excess` over both, and that `normalised` by `low` … `high`. None = not
    known; nothing is scored against the cell then. `source`: `gateways` where it goes by what they
    saw, `agent` where by what the engine counts."""

    estimate: float | None
    samples: float
    others: float | None
    chance: float | None
    excess: float | None
    low: float
    high: float
    normalised: float
    source: str = "agent"


@dataclass(frozen=True, slots=True)
class EarlyTerm:
    """One kind of evidence of early warning: its chart over its limit (1 = an alert begins)."""

    kind: str
    chart: float
    alert: bool


@dataclass(frozen=True, slots=True)
class SmoothingTerm:
    """How this tick's `mean` of the signals becomes the `base` of the pressure. None = there is none.

    `smoothed` = before + step x (aim - before), `aim` being the mean of the tick before; the mean itself
    where `jumped`. `settled` = settled_before + gain x (mean - settled_before), or smoothed where `taken`,
    or the mean of seconds, `slow`, where `shifted`: because that is further away than luck explains, of
    which `swing` is the deviation. `base` = settled
    + decayed x (median - settled); the `median` of the pool, or the middle of the scale, where nothing
    is settled."""

    mean: float | None
    before: float | None
    aim: float | None
    step: float
    jumped: bool
    smoothed: float | None
    settled_before: float | None
    gain: float
    taken: bool
    shifted: bool
    slow: float | None
    swing: float
    settled: float | None
    decayed: float
    median: float | None
    base: float


@dataclass(frozen=True, slots=True)
class WeightTerm:
    """One pool's weight. `decision` says how `before` and `target` became `weight`: moved, joined,
    limited (to `least` … `most` in one push), waiting (for the push interval), deadband, unchanged,
    held, override, shadow or frozen; or why there is no weight: a state, pinned away, cordoned.

    `headroom` is 1 - pressure, `room` that to the power of `sharpness`, times the `ramp` and the `reach`, and
    `best` the greatest room of the pool: target = max(1, round(max_weight x room / best)). The reach is what
    the path from the gateway leaves of the cell, which costs `excess_ms` more than the nearest of the pool's.
    Under `equalise`, which knows no reach, room = exp(log_weight) x ramp x health^sharpness, health being
    what failed requests and early warnings leave, and `step` was the last change of the log-weight, by how
    far the `measured` load, which is not settled, is from its pool's, the `aim`. Under `speed` room = speed x
    (relief x health)^sharpness x ramp x reach; relief is 1, or where the `measured` load is more than
    `spread` above the `usual` one of the pool (1 - measured) / (1 - usual - spread), or for a cell that is
    `blind`, nothing telling of its speed, (1 - measured) / (1 - usual). Where it makes no difference what is
    usual, it is not worked out.
    `would_be` is what shadow mode holds back.
    """

    model: str
    decision: str
    reason: str = ""
    headroom: float | None = None
    ramp: float | None = None
    sharpness: float | None = None
    room: float | None = None
    best: float | None = None
    measured: float | None = None
    aim: float | None = None
    step: float | None = None
    log_weight: float | None = None
    health: float | None = None
    speed: float | None = None
    speed_error: float | None = None
    usual: float | None = None
    spread: float | None = None
    relief: float | None = None
    blind: bool | None = None
    reach: float | None = None
    excess_ms: float | None = None
    max_weight: int | None = None
    target: int | None = None
    override: int | None = None
    before: int | None = None
    least: int | None = None
    most: int | None = None
    would_be: int | None = None
    weight: int | None = None


@dataclass(frozen=True, slots=True)
class CellExplanation:
    """One cell as seen from one gateway, at the last tick. pressure = min(1, 1 - (1 - base) x
    (1 - error.normalised) + early_added); `raw` is the same from this tick's mean, which is what
    emergencies are judged by."""

    cell_id: str
    gateway: str
    signals: tuple[SignalShare, ...]
    quorum: bool
    smoothing: SmoothingTerm
    error: ErrorTerm
    early: tuple[EarlyTerm, ...]
    early_added: float
    raw: float
    pressure: float
    weights: tuple[WeightTerm, ...]


def known(value: float) -> float | None:
    """A figure as it is told; None where it is not known."""
    return float(value) if math.isfinite(value) else None
