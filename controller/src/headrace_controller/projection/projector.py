"""The last stage before xDS: pressures in, a plan out when one is to be pushed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headrace_controller.capability import Guide
from headrace_controller.inventory import Fleet, Pools, RowMemory
from headrace_controller.pressure import Pressures
from headrace_controller.projection.asked import Asked
from headrace_controller.projection.build import PlanBuilder
from headrace_controller.projection.class_steps import ClassSteps
from headrace_controller.projection.equalise import Feedback
from headrace_controller.projection.headroom import Floats, Ints, ramps
from headrace_controller.projection.hysteresis import NEVER, Flags, Hysteresis, Members, Verdict
from headrace_controller.projection.intents import NO_INTENTS, Intents
from headrace_controller.projection.lineup import READY, Lineup, keys_of, line_up
from headrace_controller.projection.plan import Plan
from headrace_controller.projection.projections import PROJECTIONS
from headrace_controller.projection.speed import Capacity
from headrace_controller.settings import ProjectionSettings

# The error excess, normalised, from which gateways lower the weight of a cell whose agent is silent.
FAILING = 0.1


class Projected(NamedTuple):
    """One tick's outcome. `plan` is to be pushed, None = push nothing; `reason` says why.

    `row` and `pool` (m,) are the memberships that may have requests, of the `pools`; `ramp` (m,) in
    [0, 1]; `held` (m,) or (G, m) keep what they have; `overrides` (m,) are weights set by operators,
    0 = none. `target` (G, m) is what the pressures ask for, `before` (G, m) what gateways held, 0 =
    nothing, and `weights` (G, m) what they hold after this tick. `verdict` says how the one became the
    other; in shadow mode it is that of a push that nobody sees, and `weights` are not its own. `reach`
    gives, by the weight before, the least and the greatest that one push may make of it. `feedback` is
    that of a projection with one.
    """

    plan: Plan | None
    reason: str
    pools: Pools
    row: Ints
    pool: Ints
    target: Ints
    before: Ints
    weights: Ints
    ramp: Floats
    held: Flags
    verdict: Verdict
    reach: Callable[[int], tuple[int, int]]
    intents: Intents = NO_INTENTS
    overrides: Ints | None = None
    feedback: Feedback | Capacity | None = None


class Projector:
    """Keeps what was pushed. `gateways` are the fleet's; `ramp_s` is the lifecycle's, 0 = no ramp."""

    def __init__(self, settings: ProjectionSettings, gateways: Sequence[str], ramp_s: float) -> None:
        self._settings = settings
        self._projection = PROJECTIONS[settings.name](settings)
        self._gateways = tuple(gateways)
        self._ramp_s = ramp_s
        self._hysteresis = Hysteresis(settings)
        self._shadow: Hysteresis | None = None
        self._intents = NO_INTENTS
        self._models: tuple[str, ...] = ()
        self._lineup: Lineup | None = None
        self._builder = PlanBuilder(gateways)
        self._class_steps = ClassSteps(settings)
        self._patience_ends = NEVER
        self._seeded = RowMemory({"until": NEVER}, width=len(self._gateways))

    def tick(
        self,
        fleet: Fleet,
        pressures: Pressures,
        now: float,
        force: bool = False,
        intents: Intents = NO_INTENTS,
    ) -> Projected:
        """Judge this tick. `pressures` must be of this tick; `force` pushes at once, after a
        change in the lifecycle; so does a change of `intents`."""
        lineup = self._lineup = line_up(fleet, intents, self._settings.max_weight, self._lineup)
        pools, row = lineup.pools, lineup.row
        ramp = ramps(fleet.ready_since[row], now, self._ramp_s) if self._ramp_s else lineup.full
        held = self._held(fleet, pressures, row, now)
        target = self._projection.project(self._ask(lineup, pressures, ramp, held, now))
        members = _members(lineup, target, pressures, held, ramp, self._projection.firm)
        why = self._why(force, pools, intents)
        still = intents.shadow or intents.frozen
        if still:
            verdict, shown = self._hold_all(members, lineup, intents, now, why)
        else:
            self._shadow = None
            due = "" if self._class_steps.settled else "classes"
            verdict = shown = self._hysteresis.judge(members, now, why, due)
        self._projection.note(lineup.keys, verdict.weights)
        plan = None
        if verdict.push:
            self._models, self._intents = pools.models, intents
            plan = self._build(fleet, lineup, verdict, still)
        return Projected(
            plan, verdict.reason, pools, row, lineup.pool, target, verdict.before, verdict.weights,
            ramp, held, shown, self._hysteresis.reach, intents, lineup.overrides, self._projection.feedback,
        )  # fmt: skip

    def divide(self, guide: Guide) -> None:
        """Divide pools into classes by `guide` from the next plan on; the next tick should be forced.
        Weights of classes get there by as many pushes as `max_change` takes."""
        self._builder.guide = guide

    def go_on_from(self, other: Projector) -> None:
        """Take what another projector of the same fleet told of classes as pushed."""
        self._class_steps.take(other._class_steps)

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
            for member in np.flatnonzero(fleet.state[pools.row] == READY).tolist()
            if (told := self._told(weights, fleet, pools, member)) is not None
        ]
        members = np.array([member for member, _ in kept], dtype=np.int64)
        told_weights = np.array([row for _, row in kept], dtype=np.int64).reshape(-1, len(self._gateways)).T
        blank = np.zeros(len(members), dtype=np.bool_)
        raw = np.ones(told_weights.shape)
        keys = keys_of(fleet, pools, members)
        self._seeded.follow(fleet)
        self._patience_ends = now + patience_s
        self._seeded["until"][pools.row[members]] = self._patience_ends
        self._hysteresis.seed(Members(keys, told_weights, raw, held=blank, ramping=blank), now)
        self._projection.note(keys, told_weights)

    def seed_class(
        self, fleet: Fleet, model: str, length: int, weights: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Take `weights` [cell][gateway] of one class, the one of `length` tokens, as pushed before this
        controller started: the first pushes move them no further than others do. A cell that is not told
        to all gateways is left out."""
        pools = fleet.pools()
        of_model = np.flatnonzero(pools.pool == pools.index.get(model, -1)).tolist()
        kept = []
        for member in of_model:
            told = weights.get(fleet.facts_of(int(pools.row[member])).cell_id, {})
            if all(gateway in told for gateway in self._gateways):
                kept.append((member, [told[gateway] for gateway in self._gateways]))
        if kept:
            members = np.array([member for member, _ in kept], dtype=np.int64)
            rows = np.array([row for _, row in kept], dtype=np.int64)
            self._class_steps.seed(model, length, keys_of(fleet, pools, members), rows.T)

    def _ask(self, lineup: Lineup, pressures: Pressures, ramp: Floats, held: Flags, now: float) -> Asked:
        row, pools = lineup.row, len(lineup.pools.models)
        reach = None if pressures.reach is None else pressures.reach.factor.take(row, axis=1)
        if self._projection.asks == "pressure":
            pressure = pressures.pressure.take(row, axis=1)
            return Asked(lineup.keys, pressure, ramp, lineup.pool, pools, held, now, reach=reach)
        pressure = (pressures.load() if self._projection.asks == "live" else pressures.base).take(row, axis=1)
        health, speeds = pressures.health()[row], pressures.speeds
        speed, blind = speeds.relative[row], speeds.blind[row]
        return Asked(lineup.keys, pressure, ramp, lineup.pool, pools, held, now, health, speed, blind, reach)

    def _build(self, fleet: Fleet, lineup: Lineup, verdict: Verdict, still: bool) -> Plan:
        """The plan of a push; `still`: only who joins, and weights set by operators, move in classes."""
        free = verdict.free
        if still:
            free = None if lineup.overrides is None else lineup.overrides > 0
        steps = self._class_steps
        steps.begin(lineup.keys, free, still)
        plan = self._builder.build(fleet, lineup.pools, lineup.members, verdict.weights, steps)
        steps.end()
        return plan

    def _why(self, force: bool, pools: Pools, intents: Intents) -> str:
        """What pushes whatever the weights are."""
        if force:
            return "lifecycle"
        if pools.models != self._models:
            return "pools"
        return "intents" if intents is not self._intents and intents != self._intents else ""

    def _hold_all(
        self, members: Members, lineup: Lineup, intents: Intents, now: float, why: str
    ) -> tuple[Verdict, Verdict]:
        """The verdict that moves no weight but those which operators set, and the one to show: in shadow
        mode that of the push that would have been."""
        held = self._hysteresis.pushed(lineup.keys)
        kept = _fill_joining(np.broadcast_to(held, members.weights.shape), lineup, self._settings.max_weight)
        standing = members._replace(weights=kept)
        if lineup.overrides is not None:
            standing = _with_overrides(standing, lineup.overrides)
        if not intents.shadow:
            self._shadow = None
            verdict = self._hysteresis.judge(standing, now, why)
            return verdict, verdict
        if self._shadow is None:
            self._shadow = self._hysteresis.fork()
        shown = self._shadow.judge(members, now)
        return self._hysteresis.judge(standing, now, why), shown

    def _held(self, fleet: Fleet, pressures: Pressures, row: Ints, now: float) -> Flags:
        """(m,) or (G, m): who keeps its weight. Besides cells that are not spoken for, those that were
        READY before this controller started, as long as there are no figures to judge them by."""
        held: Flags = fleet.held[row] | fleet.telemetry_lost[row]
        if pressures.errors_by_gateways is not None:
            # Nobody speaks for the cell, but gateways see that it fails.
            failing = pressures.errors_by_gateways & (pressures.errors > FAILING)
            held &= ~(failing & ~fleet.held[: fleet.size])[row]
        if now >= self._patience_ends:
            return held
        self._seeded.follow(fleet)
        until = self._seeded["until"].T
        until[pressures.quorum | (fleet.state[: fleet.size] != READY)] = NEVER
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


def _members(
    lineup: Lineup, target: Ints, pressures: Pressures, held: Flags, ramp: Floats, firm: Flags | None
) -> Members:
    ramping = None
    if ramp is not lineup.full:
        below = ramp < 1.0
        ramping = below if np.count_nonzero(below) else None
    raw = pressures.raw.take(lineup.row, axis=1)
    members = Members(lineup.keys, target, raw, held, ramping, None, firm)
    return members if lineup.overrides is None else _with_overrides(members, lineup.overrides)


def _with_overrides(members: Members, overrides: Ints) -> Members:
    exact = overrides > 0
    return members._replace(weights=np.where(exact, overrides, members.weights), exact=exact)


def _fill_joining(held: Ints, lineup: Lineup, most: int) -> Ints:
    """(G, m): `held` weights, of which a missing one (0) is the median of its pool's, the most where
    the pool has none."""
    weights = held.copy()
    for number in np.unique(lineup.pool[(held == 0).any(axis=0)]).tolist():
        own = np.flatnonzero(lineup.pool == number)
        for row in weights:
            known = row[own][row[own] > 0]
            middle = int(np.median(known)) if len(known) else most
            row[own] = np.where(row[own] > 0, row[own], middle)
    return weights
