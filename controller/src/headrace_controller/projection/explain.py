"""Why a weight is what it is: every number between a cell's figures and what a gateway holds.

An explanation accounts for the weight to the last digit: who does its arithmetic again, as
docs/pressure.md gives it, gets the weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure import Pressures, SignalShare
from headrace_controller.pressure.errors import compare
from headrace_controller.pressure.evidence import KINDS
from headrace_controller.pressure.ranges import ERROR
from headrace_controller.projection.headroom import LEAST_HEADROOM, best_of, rooms
from headrace_controller.projection.projector import Projected
from headrace_controller.projection.speed import Capacity
from headrace_controller.settings import ProjectionSettings


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


def explain(
    fleet: Fleet,
    pressures: Pressures,
    projected: Projected,
    settings: ProjectionSettings,
    cell_id: str,
    gateway: str,
) -> CellExplanation | None:
    """The explanation of the tick that `pressures` and `projected` are of; None where the cell was
    not scored in it. Raises KeyError for an unknown cell, ValueError for an unknown gateway."""
    row, number = fleet.row(cell_id), fleet.gateways.index(gateway)
    if row >= len(pressures.generation) or pressures.generation[row] != fleet.generation[row]:
        return None
    early = pressures.early
    return CellExplanation(
        cell_id=cell_id,
        gateway=gateway,
        signals=pressures.explain(number, row),
        quorum=bool(pressures.quorum[number, row]),
        smoothing=_smoothing(pressures, number, row),
        error=_error(pressures, row),
        early=() if early is None else tuple(
            map(EarlyTerm, KINDS, early.charts[row].tolist(), early.alerts[row].tolist())
        ),
        early_added=0.0 if early is None else float(early.added[row]),
        raw=float(pressures.raw[number, row]),
        pressure=float(pressures.pressure[number, row]),
        weights=_weights(fleet, pressures, projected, settings, number, row),
    )  # fmt: skip


def _smoothing(pressures: Pressures, gateway: int, row: int) -> SmoothingTerm:
    found, at = pressures.smoothing, (gateway, row)
    settled = found.settled
    return SmoothingTerm(
        mean=_known(found.mean[at]),
        before=_known(found.before[at]),
        aim=_known(found.aim[at]),
        step=found.step,
        jumped=bool(found.as_is[at]),
        smoothed=_known(found.smoothed[at]),
        settled_before=_known(settled.before[at]),
        gain=float(settled.gain[at]),
        taken=bool(settled.taken[at]),
        shifted=bool(settled.shifted[at]),
        slow=_known(settled.slow[at]),
        swing=float(settled.swing[at]),
        settled=_known(settled.base[at]),
        decayed=0.0 if found.decayed is None else float(found.decayed[at]),
        median=None if found.median is None else _known(found.median[at]),
        base=float(found.base[at]),
    )


def _error(pressures: Pressures, row: int) -> ErrorTerm:
    """The comparison in the pool where the cell is worst."""
    pools = pressures.pools
    compared = compare(pressures.error_estimate, pressures.error_samples, pools, pressures.ready)
    own = np.flatnonzero(pools.row == row)
    over = np.nan_to_num(compared.over[own], nan=-math.inf)
    worst = int(own[int(over.argmax())]) if len(own) else None
    by_gateways = pressures.errors_by_gateways
    return ErrorTerm(
        estimate=_known(pressures.error_estimate[row]),
        samples=float(pressures.error_samples[row]),
        others=None if worst is None else _known(compared.others[worst]),
        chance=None if worst is None else _known(compared.chance[worst]),
        excess=_known(pressures.error_excess[row]),
        low=float(pressures.ranges.low[ERROR]),
        high=float(pressures.ranges.high[ERROR]),
        normalised=_known(pressures.errors[row]) or 0.0,
        source="agent" if by_gateways is None or not by_gateways[row] else "gateways",
    )


def _weights(
    fleet: Fleet,
    pressures: Pressures,
    projected: Projected,
    settings: ProjectionSettings,
    gateway: int,
    row: int,
) -> tuple[WeightTerm, ...]:
    pools = projected.pools
    terms = []
    for pool in pools.pool[pools.row == row].tolist():
        at = np.flatnonzero((projected.row == row) & (projected.pool == pool))
        if len(at):
            terms.append(_weight(pressures, projected, settings, gateway, int(at[0])))
        else:
            terms.append(WeightTerm(pools.models[pool], _why_none(fleet, projected, row, pools.models[pool])))
    return tuple(terms)


def _weight(
    pressures: Pressures, projected: Projected, settings: ProjectionSettings, gateway: int, member: int
) -> WeightTerm:
    at = (gateway, member)
    pool, row = int(projected.pool[member]), int(projected.row[member])
    before, target, weight = (
        int(each[at]) for each in (projected.before, projected.target, projected.weights)
    )
    override = None if projected.overrides is None else int(projected.overrides[member]) or None
    least, most = projected.reach(before)
    shown = projected.verdict.weights
    return WeightTerm(
        model=projected.pools.models[pool],
        decision=_decision(projected, gateway, member, override),
        reason=projected.reason,
        headroom=max(1.0 - float(pressures.pressure[gateway, row]), LEAST_HEADROOM),
        ramp=float(projected.ramp[member]),
        max_weight=settings.max_weight,
        target=target,
        override=override,
        before=before or None,
        least=least,
        most=most,
        would_be=int(shown[at]) if projected.intents.shadow else None,
        weight=weight,
        **_origin(pressures, projected, settings, gateway, member),
    )


def _origin(
    pressures: Pressures, projected: Projected, settings: ProjectionSettings, gateway: int, member: int
) -> dict[str, Any]:
    """What the target came of, by projection."""
    at, feedback = (gateway, member), projected.feedback
    if isinstance(feedback, Capacity):
        row = int(projected.row[member])
        return _capacity(pressures, feedback, settings, at, row) | _reach(pressures, gateway, row)
    if feedback is not None:
        room, best = feedback.room, np.broadcast_to(feedback.best, feedback.room.shape)
        return {
            "measured": float(feedback.pressure[at]),
            "aim": float(np.nan_to_num(feedback.aim[at])),
            "step": float(feedback.step[at]),
            "log_weight": float(feedback.log_weight[at]),
            "health": float(pressures.health()[projected.row[member]]),
            "sharpness": settings.sharpness,
            "room": float(room[at]),
            "best": float(best[at]),
        }
    own = np.flatnonzero(projected.pool == projected.pool[member])
    pressure = pressures.pressure[gateway : gateway + 1, projected.row[own]]
    room = rooms(pressure, projected.ramp[own], settings.sharpness)
    if pressures.reach is not None:
        room = room * pressures.reach.factor[gateway : gateway + 1, projected.row[own]]
    best = best_of(room, projected.pool[own], 1)
    mine = room[0, int(np.flatnonzero(own == member)[0])]
    told = _reach(pressures, gateway, int(projected.row[member]))
    return told | {"sharpness": settings.sharpness, "room": float(mine), "best": float(best[0, 0])}


def _reach(pressures: Pressures, gateway: int, row: int) -> dict[str, Any]:
    reach = pressures.reach
    if reach is None:
        return {"reach": 1.0}
    excess_ms = _known(reach.excess_ms[gateway, row])
    return {"reach": float(reach.factor[gateway, row]), "excess_ms": excess_ms}


def _capacity(
    pressures: Pressures, found: Capacity, settings: ProjectionSettings, at: tuple[int, int], row: int
) -> dict[str, Any]:
    return {
        "measured": float(found.load[at]),
        "usual": float(found.usual[at]),
        "spread": settings.spread,
        "relief": float(found.relief[at]),
        "health": float(np.broadcast_to(found.health, found.room.shape)[at]),
        "speed": float(np.broadcast_to(found.speed, found.room.shape)[at]),
        "speed_error": _known(pressures.speeds.error[row]),
        "blind": bool(pressures.speeds.blind[row]),
        "sharpness": settings.sharpness,
        "room": float(found.room[at]),
        "best": float(np.broadcast_to(found.best, found.room.shape)[at]),
    }


def _decision(projected: Projected, gateway: int, member: int, override: int | None) -> str:
    at, verdict = (gateway, member), projected.verdict
    if override is not None:
        return "override"
    if projected.before[at] == 0:
        return "joined"
    if projected.intents.shadow or projected.intents.frozen:
        return "shadow" if projected.intents.shadow else "frozen"
    if projected.target[at] == verdict.before[at]:
        return "unchanged"
    if np.broadcast_to(projected.held, projected.weights.shape)[at]:
        return "held"
    if verdict.moved is None or not verdict.moved[at]:
        return "deadband"
    if not projected.reason:
        return "waiting"
    return "limited" if verdict.limited is not None and verdict.limited[at] else "moved"


def _why_none(fleet: Fleet, projected: Projected, row: int, model: str) -> str:
    if fleet.state[row] != CellState.READY:
        state = int(fleet.state[row])
        return CellState(state).name if state else "not known yet"
    pins, site = projected.intents.pins, fleet.facts_of(row).site
    return "pinned away" if model in pins and site not in pins[model] else "cordoned"


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
