"""One arm of a scenario at a set rate, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace_lab.live.ask import Ask
from headrace_lab.live.seen import ArmRun
from headrace_lab.load.arrivals import Arrival
from headrace_lab.load.classes import generate
from headrace_lab.scenarios import FleetPlan
from headrace_lab.sim.clients import Clients
from headrace_lab.sim.faults import Faults
from headrace_lab.sim.world import Setup, World

DRAIN_S = 2.0
"""Beyond the clients' patience; what is still open then is given up."""
Script = Callable[[World, Ask], Faults]
"""Enters what happens to the fleet into the world's calendar."""


@dataclass(frozen=True)
class SimRun:
    """One arm's run; `plans` are (seconds from the load's start, weights) as the gateway got them."""

    seen: ArmRun
    world: World
    plans: list[tuple[float, dict[str, int]]] = field(default_factory=list)

    @property
    def arm(self) -> str:
        return self.seen.arm


def setup_of(ask: Ask, network: str = "", **changes: Any) -> Setup:
    """What all arms of a scenario share; `network` names another than the one asked for."""
    name = network or next(iter(ask.networks), ask.scenario.network)
    return Setup(
        fleet=ask.fleet,
        network=ask.catalogue.network(name),
        gateway=ask.catalogue.gateway,
        client=ask.catalogue.client,
        changes=ask.options.settings,
        **changes,
    )


def arrivals_of(ask: Ask, rps: float | None = None, seconds: float | None = None) -> list[Arrival]:
    """The scenario's requests, the same for each arm."""
    return generate(
        ask.load,
        rps=rps or ask.rps,
        seconds=seconds or ask.seconds,
        seed=ask.seed,
        most_tokens=longest(ask.fleet),
    )


def longest(fleet: FleetPlan) -> int:
    """Tokens that the largest cell takes."""
    return max(plan.max_model_len for plan in fleet.plans)


def run_arm(
    ask: Ask,
    name: str,
    setup: Setup,
    arrivals: Sequence[Arrival],
    script: Script | None = None,
    condition: str = "",
) -> SimRun:
    """Run one arm; where the scenario has a script of faults its clients try again."""
    world = World(setup, ask.arms[name], ask.seed)
    clients = Clients(world, setup.client, again=script is not None and ask.fault is not None)
    faults = script(world, ask) if script is not None else None
    world.run(arrivals, ask.seconds)
    _drain(world, ask.seconds)
    plans = [(at - world.origin, weights) for at, weights in world.plans]
    seen = ArmRun(
        name,
        tuple(clients.records()),
        world.origin,
        faults.seen() if faults is not None else (),
        condition=condition,
    )
    return SimRun(seen, world, plans)


def _drain(world: World, sent_s: float) -> None:
    """Let what is open end, or its client lose patience, as live clients do."""
    gateway = world.gateway
    if gateway.outstanding:
        world.run([], sent_s + world.setup.client.timeout_s + DRAIN_S)
    for job in list(gateway.outstanding.values()):
        gateway.give_up(world.clock.now(), job)
