"""One cell's weight in each of its pools: what it came of, and what was decided."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure import Pressures
from headrace_controller.projection.equalise import Feedback
from headrace_controller.projection.explain.terms import WeightTerm, known
from headrace_controller.projection.headroom import LEAST_HEADROOM, best_of, rooms
from headrace_controller.projection.projector import Projected
from headrace_controller.projection.speed import Capacity
from headrace_controller.settings import ProjectionSettings


def weights_of(
    fleet: Fleet,
    pressures: Pressures,
    projected: Projected,
    settings: ProjectionSettings,
    gateway: int,
    row: int,
) -> tuple[WeightTerm, ...]:
    """The term of each pool that the cell in `row` is in."""
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
    at, row, feedback = (gateway, member), int(projected.row[member]), projected.feedback
    if isinstance(feedback, Capacity):
        return _speed(pressures, feedback, settings, at, row) | _reach(pressures, gateway, row)
    if feedback is not None:
        return _equalise(pressures, feedback, settings, at, row)
    return _headroom(pressures, projected, settings, at) | _reach(pressures, gateway, row)


def _speed(
    pressures: Pressures, found: Capacity, settings: ProjectionSettings, at: tuple[int, int], row: int
) -> dict[str, Any]:
    return {
        "measured": float(found.load[at]),
        "usual": float(found.usual[at]),
        "spread": settings.spread,
        "relief": float(found.relief[at]),
        "health": float(np.broadcast_to(found.health, found.room.shape)[at]),
        "speed": float(np.broadcast_to(found.speed, found.room.shape)[at]),
        "speed_error": known(pressures.speeds.error[row]),
        "blind": bool(pressures.speeds.blind[row]),
        "sharpness": settings.sharpness,
        "room": float(found.room[at]),
        "best": float(np.broadcast_to(found.best, found.room.shape)[at]),
    }


def _equalise(
    pressures: Pressures, found: Feedback, settings: ProjectionSettings, at: tuple[int, int], row: int
) -> dict[str, Any]:
    return {
        "measured": float(found.pressure[at]),
        "aim": float(np.nan_to_num(found.aim[at])),
        "step": float(found.step[at]),
        "log_weight": float(found.log_weight[at]),
        "health": float(pressures.health()[row]),
        "sharpness": settings.sharpness,
        "room": float(found.room[at]),
        "best": float(np.broadcast_to(found.best, found.room.shape)[at]),
    }


def _headroom(
    pressures: Pressures, projected: Projected, settings: ProjectionSettings, at: tuple[int, int]
) -> dict[str, Any]:
    """Worked out anew among the cells of the pool: this projection keeps nothing."""
    gateway, member = at
    own = np.flatnonzero(projected.pool == projected.pool[member])
    here = (slice(gateway, gateway + 1), projected.row[own])
    room = rooms(pressures.pressure[here], projected.ramp[own], settings.sharpness)
    if pressures.reach is not None:
        room = room * pressures.reach.factor[here]
    best = best_of(room, projected.pool[own], 1)
    mine = room[0, int(np.flatnonzero(own == member)[0])]
    return {"sharpness": settings.sharpness, "room": float(mine), "best": float(best[0, 0])}


def _reach(pressures: Pressures, gateway: int, row: int) -> dict[str, Any]:
    reach = pressures.reach
    if reach is None:
        return {"reach": 1.0}
    excess_ms = known(reach.excess_ms[gateway, row])
    return {"reach": float(reach.factor[gateway, row]), "excess_ms": excess_ms}


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
