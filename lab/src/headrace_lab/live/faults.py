"""Strike a target, watch Envoy let go of it, mend it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace_lab.demo.kill import FAST_FOR_S, FAST_POLL_S, SLOW_POLL_S
from headrace_lab.demo.observe import Host
from headrace_lab.live.layout import Layout
from headrace_lab.live.seen import FaultSeen
from headrace_lab.live.session import Session
from headrace_lab.scenarios import FaultKind

WHOLE_S = 15.0


@dataclass(frozen=True, slots=True)
class Target:
    """Who is struck: cells, and the programs that stop with them where a whole node does."""

    cells: tuple[str, ...]
    programs: tuple[str, ...]


def targets(layout: Layout, fault: FaultKind, seed: int) -> list[Target]:
    """All targets of a kind of fault, in an order fixed by the seed."""
    fleet = layout.fleet
    if fault.target == "engine":
        found = [Target((cell.id,), (f"cell {cell.id}",)) for cell in fleet.cells]
    elif fault.target == "node":
        found = [_nodes(layout, (site.node,)) for site in fleet.sites]
    else:
        names = dict.fromkeys(site.name for site in fleet.sites)
        found = [_nodes(layout, layout.nodes_of_site(name)) for name in names]
    random.Random(seed).shuffle(found)  # noqa: S311
    return found


def _nodes(layout: Layout, nodes: Sequence[str]) -> Target:
    cells = tuple(cell for node in nodes for cell in layout.cells_of_node(node))
    programs = [f"cell {cell}" for cell in cells]
    programs += [f"{kind} {node}" for node in nodes for kind in ("agent", "exporter")]
    return Target(cells, tuple(programs))


def busiest_first(order: Sequence[Target], turn: int, hosts: Mapping[str, Host] | None) -> Target:
    """The first target from `turn` on, going round, on which Envoy has a request open."""
    rotated = [order[(turn + i) % len(order)] for i in range(len(order))]
    for target in rotated:
        if hosts is not None and any(cell in hosts and hosts[cell].active > 0 for cell in target.cells):
            return target
    return rotated[0]


async def strike(session: Session, fault: FaultKind, target: Target) -> None:
    """Let the fault happen. Raises StackError."""
    match fault.effect:
        case "exit" | "reload":
            for name in target.programs:
                session.kill(name)
        case "hang":
            for cell in target.cells:
                await session.set_fault(cell, "hang")
        case "dark":
            session.freeze(target.programs)


async def mend(session: Session, fault: FaultKind, target: Target) -> None:
    """Undo it. Raises StackError."""
    match fault.effect:
        case "exit" | "reload":
            for name in target.programs:
                await session.program(name).ended()
                await session.restart(name, loading_s=fault.loading_s, wait=fault.effect == "exit")
        case "hang":
            for cell in target.cells:
                await session.set_fault(cell, "clear")
        case "dark":
            session.thaw()


async def watch(session: Session, seen: FaultSeen, start: float, patience_s: float) -> FaultSeen:
    """Ask Envoy, for `patience_s` after the fault at most, until all struck cells have left its list or,
    on a plain Envoy, are marked unhealthy."""
    cells, clock = seen.cells, session.clock
    at = start + seen.at_s
    shunned: float | None = None
    while (now := clock.now()) < at + patience_s:
        hosts = await session.hosts()
        moment = clock.now() - start
        if hosts is not None:
            left = [cell for cell in cells if cell in hosts]
            if not left:
                return replace(seen, gone_s=moment, shunned_s=shunned)
            if shunned is None and not any(hosts[cell].healthy for cell in left):
                shunned = moment
                if not session.arm.lifecycle:
                    break
        await asyncio.sleep(FAST_POLL_S if now < at + FAST_FOR_S else SLOW_POLL_S)
    return replace(seen, shunned_s=shunned)
