"""The last stage before xDS: pressures in, a plan out when one is to be pushed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headrace_controller.inventory import Fleet, Pools, RowMemory
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure import Pressures
from headrace_controller.projection.build import PlanBuilder
from headrace_controller.projection.headroom import PROJECTIONS, Ints, ramps
from headrace_controller.projection.hysteresis import NEVER, Flags, Hysteresis, Members
from headrace_controller.projection.plan import Plan
from headrace_controller.settings import ProjectionSettings

_POOL_BITS = 24
# An enum's member is looked up slowly, and this one at every tick.
_READY = int(CellState.READY)


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


@dataclass(frozen=True)
class _Lineup:
    """The READY memberships of `pools`: their numbers, rows, pools and keys (m,). The same object is
    used for as long as nothing of it changes, so that its arrays can be told by identity."""

    pools: Pools
    ready: bytes
    members: Ints
    row: Ints
    pool: Ints
    keys: Ints


class Projector:
    """Keeps what was pushed. `gateways` are the fleet's; `ramp_s` is the lifecycle's, 0 = no ramp."""

    def __init__(self, settings: ProjectionSettings, gateways: Sequence[str], ramp_s: float) -> None:
        self._settings = settings
        self._project = PROJECTIONS[settings.name]
        self._gateways = tuple(gateways)
        self._ramp_s = ramp_s
        self._hysteresis = Hysteresis(settings)
        self._models: tuple[str, ...] = ()
        self._lineup: _Lineup | None = None
        self._builder = PlanBuilder(gateways)
        self._patience_ends = NEVER
        self._seeded = RowMemory({"until": NEVER}, width=len(self._gateways))

    def tick(self, fleet: Fleet, pressures: Pressures, now: float, force: bool = False) -> Projected:
        """Judge this tick. `pressures` must be of this tick; `force` pushes at once, after a
        change in the lifecycle."""
        lineup = self._line_up(fleet)
        pools, row, pool = lineup.pools, lineup.row, lineup.pool
        ramp = ramps(fleet.ready_since[row], now, self._ramp_s)
        pressure = pressures.pressure.take(row, axis=1)
        target = self._project(pressure, ramp, pool, len(pools.models), self._settings)
        why = "lifecycle" if force else "pools" if pools.models != self._models else ""
        judged = Members(
            keys=lineup.keys,
            weights=target,
            raw=pressures.raw.take(row, axis=1),
            held=self._held(fleet, pressures, row, now),
            ramping=ramp < 1.0,
        )
        verdict = self._hysteresis.judge(judged, now, why)
        plan = None
        if verdict.push:
            self._models = pools.models
            plan = self._builder.build(fleet, pools, lineup.members, verdict.weights)
        return Projected(plan, verdict.reason, pools, row, pool, target, verdict.weights)

    def seed(
        self,
        fleet: Fleet,
        weights: Mapping[str, Mapping[str, Mapping[str, int]]],
        now: float,
        patience_s: float = 0.0,
    ) -> None:
        """Take `weights` [cell][model][gateway] as pushed before this controller started. Held cells
        keep them, and so does each cell until its figures make a quorum, for `patience_s` at most.
        Call it once, when the lives of the kept cells are restored."""
        pools = fleet.pools()
        kept = [
            (member, list(told.values()))
            for member in np.flatnonzero(fleet.state[pools.row] == _READY).tolist()
            if (told := self._told(weights, fleet, pools, member)) is not None
        ]
        members = np.array([member for member, _ in kept], dtype=np.int64)
        told_weights = np.array([row for _, row in kept], dtype=np.int64).reshape(-1, len(self._gateways)).T
        blank = np.zeros(len(members), dtype=np.bool_)
        raw = np.ones(told_weights.shape)
        keys = _keys(fleet, pools, members)
        self._seeded.follow(fleet)
        self._patience_ends = now + patience_s
        self._seeded["until"][pools.row[members]] = self._patience_ends
        self._hysteresis.seed(Members(keys, told_weights, raw, held=blank, ramping=blank), now)

    def _line_up(self, fleet: Fleet) -> _Lineup:
        pools, last = fleet.pools(), self._lineup
        ready = fleet.state[pools.row] == _READY
        mask = ready.tobytes()
        if last is None or last.pools is not pools or last.ready != mask:
            members = np.flatnonzero(ready)
            row, pool, keys = pools.row[members], pools.pool[members], _keys(fleet, pools, members)
            self._lineup = last = _Lineup(pools, mask, members, row, pool, keys)
        return last

    def _held(self, fleet: Fleet, pressures: Pressures, row: Ints, now: float) -> Flags:
        """(m,) or (G, m): who keeps its weight. Besides cells that are not spoken for, those that were
        READY before this controller started, as long as there are no figures to judge them by."""
        held: Flags = fleet.held[row] | fleet.telemetry_lost[row]
        if now >= self._patience_ends:
            return held
        self._seeded.follow(fleet)
        until = self._seeded["until"].T
        until[pressures.quorum | (fleet.state[: fleet.size] != _READY)] = NEVER
        return held | (now < until[:, row])

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


def _keys(fleet: Fleet, pools: Pools, members: Ints) -> Ints:
    """(m,): a number for each membership that no other one ever has."""
    return (fleet.generation[pools.row[members]] << _POOL_BITS) | pools.ids[pools.pool[members]]
