"""Faults that strike a simulated fleet, and what the gateway makes of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from headrace_agent.settings import EngineSettings
from headrace_lab.live.ask import Ask
from headrace_lab.live.seen import FaultSeen
from headrace_lab.scenarios import FaultKind
from headrace_lab.sim.cells import Condition
from headrace_lab.sim.world import World
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import INDEX

SEEN_GONE_S = 0.005
"""The agent's idle connection to an engine ends with the engine; a refused reconnect proves it."""
PROBE_S = float(EngineSettings().probe_interval_s)
HUNG_AFTER_S = float(EngineSettings().hung_after_s)
LOOK_S = 0.01
COMPUTE = INDEX["compute_active"]
WARM_UP_S = 0.4
"""One real completion of a fresh engine, which its agent asks for."""

_EVENTS = {
    Condition.DOWN: pb.CELL_EVENT_KIND_ENGINE_DOWN,
    Condition.LOADING: pb.CELL_EVENT_KIND_ENGINE_LOADING,
    Condition.SERVING: pb.CELL_EVENT_KIND_ENGINE_SERVING,
    Condition.HUNG: pb.CELL_EVENT_KIND_ENGINE_HUNG,
}


@dataclass(slots=True)
class Strike:
    """One fault as it goes on; times on the virtual clock."""

    kind: str
    cells: tuple[str, ...]
    at: float
    gone_at: float | None = None
    shunned_at: float | None = None
    noticed_at: float | None = None
    repaired_at: float | None = None


class Faults:
    """Plays a scenario's faults against a world and keeps what was seen of each."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.strikes: list[Strike] = []
        world.on_change = self._look

    def seen(self) -> tuple[FaultSeen, ...]:
        """All faults, their times from the start of the load."""
        origin = self._world.origin

        def since(at: float | None) -> float | None:
            return None if at is None else at - origin

        return tuple(
            FaultSeen(
                each.kind,
                each.cells,
                each.at - origin,
                since(each.gone_at),
                since(each.shunned_at),
                since(each.noticed_at),
                since(each.repaired_at),
            )
            for each in self.strikes
        )

    def begin(self, kind: str, cells: tuple[str, ...], now: float) -> Strike:
        """A fault happens now."""
        strike = Strike(kind, cells, now)
        self.strikes.append(strike)
        return strike

    def _look(self, now: float) -> None:
        """The gateway's endpoints, or their health, have changed."""
        for strike in self.strikes:
            if strike.repaired_at is not None and now > strike.repaired_at:
                continue
            here = [cell for cell in strike.cells if cell in self._world.endpoints]
            if not here and strike.gone_at is None:
                strike.gone_at = now
            if strike.shunned_at is None and here and self._world.unhealthy.issuperset(here):
                strike.shunned_at = now

    def notice(self, cell: str, condition: Condition, after_s: float) -> None:
        """The agent of a cell sees its engine in a condition, and tells at once."""
        world = self._world
        agent = world.agents[world.cells[cell].plan.site]

        def see(now: float, _: object) -> None:
            if world.cells[cell].condition is not condition:
                return  # it has changed again before it was seen
            agent.notice(cell, condition, now)
            if world.controller is not None:
                world.controller.tell(now, agent, cell, _EVENTS[condition])

        world.calendar.enter(world.clock.now() + after_s, see)


def failover(world: World, ask: Ask) -> Faults:
    """Strike one busy target after the other, as the scenario file says; each is repaired in time."""
    faults, fault, times = Faults(world), ask.fault, ask.faults
    if fault is None or times is None:
        raise ValueError(f"scenario {ask.name} has no faults")
    order = _targets(world, fault, ask.seed)
    for turn, at_s in enumerate(times.times(ask.seconds)):

        def act(now: float, turn: int = turn) -> None:
            target = _busiest(world, order, turn)
            strike = faults.begin(ask.kind, target, now)
            _strike(world, faults, fault, strike)

        world.at(at_s, act)
    return faults


def _targets(world: World, fault: FaultKind, seed: int) -> list[tuple[str, ...]]:
    """All targets in an order fixed by the seed; a node is a whole site here."""
    found: list[tuple[str, ...]] = [(name,) for name in world.cells]
    if fault.target != "engine":
        found = [agent.cell_ids for agent in world.agents.values()]
    random.Random(seed).shuffle(found)
    return found


def _busiest(world: World, order: list[tuple[str, ...]], turn: int) -> tuple[str, ...]:
    """The first target from `turn` on, going round, on which the gateway has a request open."""
    rotated = [order[(turn + i) % len(order)] for i in range(len(order))]
    return next((each for each in rotated if any(world.gateway.active[cell] for cell in each)), rotated[0])


def _strike(world: World, faults: Faults, fault: FaultKind, strike: Strike) -> None:
    now = strike.at
    if fault.effect == "dark":
        for site in {world.cells[name].plan.site for name in strike.cells}:
            world.paths[site].dark = True
    for name in strike.cells:
        if fault.effect in ("exit", "reload"):
            world.cells[name].die(now)
            faults.notice(name, Condition.DOWN, SEEN_GONE_S)
        elif fault.effect == "hang":
            world.cells[name].hang(now)
            faults.notice(name, Condition.HUNG, HUNG_AFTER_S + PROBE_S)
    world.calendar.enter(now + fault.repair_s, _mending(world, faults, fault), strike)


def _mending(world: World, faults: Faults, fault: FaultKind) -> Callable[[float, Strike], None]:
    def mend(now: float, strike: Strike) -> None:
        for site in {world.cells[name].plan.site for name in strike.cells}:
            world.paths[site].dark = False
        if fault.effect == "dark":
            strike.repaired_at = now
            return
        for name in strike.cells:
            world.cells[name].load(now)
            faults.notice(name, Condition.LOADING, PROBE_S)
        world.calendar.enter(now + fault.loading_s, loaded, strike)

    def loaded(now: float, strike: Strike) -> None:
        strike.repaired_at = now
        for name in strike.cells:
            world.cells[name].serve(now)
            faults.notice(name, Condition.SERVING, PROBE_S + WARM_UP_S)

    return mend


def exporters(world: World, ask: Ask) -> Faults:
    """Silence the exporter of each cell in turn; noticed when the controller scores without its figures."""
    faults, times = Faults(world), ask.faults
    if times is None or world.controller is None:
        raise ValueError(f"scenario {ask.name} needs faults and an arm with a controller")
    for name, at_s in zip(world.cells, times.times(ask.seconds), strict=False):

        def silence(now: float, name: str = name) -> None:
            strike = faults.begin("exporter", (name,), now)
            world.agents[world.cells[name].plan.site].silence_exporter(name, True)
            world.calendar.enter(now + LOOK_S, _watch_fallback(world, times.window_s), strike)

        def back(now: float, name: str = name) -> None:
            world.agents[world.cells[name].plan.site].silence_exporter(name, False)
            next(each for each in faults.strikes if each.cells == (name,)).repaired_at = now

        world.at(at_s, silence)
        world.at(at_s + times.window_s - 2.0, back)
    return faults


def _watch_fallback(world: World, patience_s: float) -> Callable[[float, Strike], None]:
    def look(now: float, strike: Strike) -> None:
        if strike.noticed_at is not None or now > strike.at + patience_s or world.controller is None:
            return
        loop = world.controller.loop
        row = loop.fleet.row(strike.cells[0])
        missing = int(loop.fleet.hardware_source[row]) == pb.HARDWARE_SOURCE_NONE
        scored = loop.pressures is not None and math.isnan(loop.pressures.raw_cell[row, COMPUTE])
        if missing and scored:
            strike.noticed_at = now
            return
        world.calendar.enter(now + LOOK_S, look, strike)

    return look
