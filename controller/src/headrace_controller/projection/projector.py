"""The last stage before xDS: pressures in, a plan out when one is to be pushed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headrace_controller.inventory import Fleet, Pools
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure import Pressures
from headrace_controller.projection.build import build_plan
from headrace_controller.projection.headroom import PROJECTIONS, Ints, ramps
from headrace_controller.projection.hysteresis import Hysteresis, Members
from headrace_controller.projection.plan import Plan
from headrace_controller.settings import ProjectionSettings

_POOL_BITS = 24


@dataclass(frozen=True)
class Projected:
    """One tick's outcome. `plan` is to be pushed, None = push nothing; `reason` says why.

    `row` and `pool` (m,) are the READY memberships; `target` (G, m) is what the pressures ask for
    and `weights` (G, m) what gateways hold after this tick.
    """

    plan: Plan | None
    reason: str
    pools: Pools
    row: Ints
    pool: Ints
    target: Ints
    weights: Ints


class Projector:
    """Keeps what was pushed. `gateways` are the fleet's; `ramp_s` is the lifecycle's, 0 = no ramp."""

    def __init__(self, settings: ProjectionSettings, gateways: Sequence[str], ramp_s: float) -> None:
        self._settings = settings
        self._project = PROJECTIONS[settings.name]
        self._gateways = tuple(gateways)
        self._ramp_s = ramp_s
        self._hysteresis = Hysteresis(settings)
        self._models: tuple[str, ...] = ()
        self._weights: dict[tuple[str, str, str], int] | None = None
        self.pushed = Plan()

    def tick(self, fleet: Fleet, pressures: Pressures, now: float, force: bool = False) -> Projected:
        """Judge this tick. `pressures` must be of this tick; `force` pushes at once, after a
        change in the lifecycle."""
        pools = fleet.pools()
        members = np.flatnonzero(fleet.state[pools.row] == CellState.READY)
        row, pool = pools.row[members], pools.pool[members]
        ramp = ramps(fleet.ready_since[row], now, self._ramp_s)
        target = self._project(pressures.pressure[:, row], ramp, pool, len(pools.models), self._settings)
        why = "lifecycle" if force else "pools" if pools.models != self._models else ""
        judged = Members(
            keys=_keys(fleet, pools, members),
            weights=target,
            raw=pressures.raw[:, row],
            held=fleet.held[row] | fleet.telemetry_lost[row],
            ramping=ramp < 1.0,
        )
        verdict = self._hysteresis.judge(judged, now, why)
        plan = self._push(fleet, pools, members, verdict.weights) if verdict.push else None
        return Projected(plan, verdict.reason, pools, row, pool, target, verdict.weights)

    def seed(self, fleet: Fleet, weights: Mapping[str, Mapping[str, Mapping[str, int]]], now: float) -> None:
        """Take `weights` [cell][model][gateway] as pushed before this controller started, so that
        held cells keep them. Call it once, when the lives of the kept cells are restored."""
        pools = fleet.pools()
        kept = [
            (member, list(told.values()))
            for member in np.flatnonzero(fleet.state[pools.row] == CellState.READY).tolist()
            if (told := self._told(weights, fleet, pools, member)) is not None
        ]
        members = np.array([member for member, _ in kept], dtype=np.int64)
        told_weights = np.array([row for _, row in kept], dtype=np.int64).reshape(-1, len(self._gateways)).T
        blank = np.zeros(len(members), dtype=np.bool_)
        raw = np.ones(told_weights.shape)
        keys = _keys(fleet, pools, members)
        self._hysteresis.seed(Members(keys, told_weights, raw, held=blank, ramping=blank), now)

    def weight_of(self, cell_id: str, model: str, gateway: str) -> int | None:
        """The weight pushed last; None where the cell is not in that pool's endpoints."""
        if self._weights is None:
            self._weights = {
                (endpoint.cell_id, of, at): endpoint.weight
                for of, by_gateway in self.pushed.pools.items()
                for at, endpoints in by_gateway.items()
                for endpoint in endpoints
            }
        return self._weights.get((cell_id, model, gateway))

    def _told(
        self,
        weights: Mapping[str, Mapping[str, Mapping[str, int]]],
        fleet: Fleet,
        pools: Pools,
        member: int,
    ) -> dict[str, int] | None:
        """The kept weights of one membership by gateway; None unless every gateway has one."""
        cell_id = fleet.facts_of(int(pools.row[member])).cell_id
        told = weights.get(cell_id, {}).get(pools.models[pools.pool[member]], {})
        most = self._settings.max_weight
        if not all(gateway in told for gateway in self._gateways):
            return None
        return {gateway: min(max(1, told[gateway]), most) for gateway in self._gateways}

    def _push(self, fleet: Fleet, pools: Pools, members: Ints, weights: Ints) -> Plan:
        self._models = pools.models
        self.pushed = build_plan(fleet, pools, members, weights, self._gateways)
        self._weights = None
        return self.pushed


def _keys(fleet: Fleet, pools: Pools, members: Ints) -> Ints:
    """(m,): a number for each membership that no other one ever has."""
    return (fleet.generation[pools.row[members]] << _POOL_BITS) | pools.ids[pools.pool[members]]
