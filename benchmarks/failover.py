"""How soon a real Envoy no longer holds what has failed, and that a lost agent moves nothing.

Six simulated engines on three nodes, their agents, a controller and an Envoy, each a process of its
own, with the default times of detection (no ramp and no hold-down, so that the next round can begin).
Times go from just before the signal to the first look at Envoy's own list without the endpoint; Envoy
is looked at every 5 ms. Signals come at random moments of the heartbeat.

- `kill_ms_max`, `kill_ms_p50`: SIGKILL of one engine, `kills` times;
- `cutoff_ms_max`, `cutoff_ms_p50`: SIGSTOP of a node's agent and all its engines, as when the node is
  cut off: until the last of its endpoints has gone, `cutoffs` times;
- `agent_kill_weight_changes`: how often Envoy's weights changed while an agent was dead and after it
  came back, over `agent_kills` kills.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.e2e.whole_path.region import PATIENCE_S, Plan, Region, make_fleet

from benchmarks.result import json_path, report
from headrace_lab.demo import programs, settings_files
from headrace_lab.demo.fleet import Fleet, Site
from headrace_lab.demo.observe import open_session
from headrace_lab.stack.program import Spec, console_script
from headrace_lab.stack.stack import Stack

SEED: Final = 1
KILLS: Final = 20
CUTOFFS: Final = 6
AGENT_KILLS: Final = 3
LOOK_S: Final = 0.005
AGENT_DEAD_S: Final = 5.0
AGENT_BACK_S: Final = 5.0
SITES: Final = {f"site-{n}": (f"cell-{n}-1", f"cell-{n}-2") for n in (1, 2, 3)}
# The engines of one site show little GPU memory in use, so that weights differ: were a dead agent's
# cells scored on nothing, they would change.
PLAN: Final = Plan(sites=SITES, roomy=frozenset({"site-1"}))
LIFECYCLE: Final = {"ramp_s": 0, "hold_down_s": 0, "barrier_s": 1}
_random: Final = random.Random(SEED)


async def measure(path: Path | None) -> None:
    """Bring the region up, hurt it, and report."""
    with tempfile.TemporaryDirectory() as directory:
        async with region(Path(directory)) as running:
            kills = [await kill(running, number) for number in range(KILLS)]
            cutoffs = [await cut_off(running, number) for number in range(CUTOFFS)]
            changes = [await lose_agent(running, number) for number in range(AGENT_KILLS)]
    figures = {
        "kill_ms_max": max(kills),
        "kill_ms_p50": statistics.median(kills),
        "kills": len(kills),
        "cutoff_ms_max": max(cutoffs),
        "cutoff_ms_p50": statistics.median(cutoffs),
        "cutoffs": len(cutoffs),
        "agent_kill_weight_changes": sum(changes),
        "agent_kills": len(changes),
    }
    report("failover", SEED, figures, path, {"kill_ms": kills, "cutoff_ms": cutoffs})


async def kill(running: Region, number: int) -> float:
    """SIGKILL one engine; ms until Envoy has lost it. It is back afterwards."""
    cells = running.fleet.cells
    cell = cells[number % len(cells)]
    await moment()
    begun = running.clock.now()
    running.program(f"cell {cell.id}").kill(planned=True)
    took = await gone(running, {cell.id}, begun)
    async with asyncio.timeout(PATIENCE_S):
        await running.program(f"cell {cell.id}").ended()
    await running.restart(f"cell {cell.id}")
    await running.serving()
    return took


async def cut_off(running: Region, number: int) -> float:
    """SIGSTOP a whole node; ms until Envoy has lost the last of its cells. It is back afterwards."""
    site = running.fleet.sites[number % len(running.fleet.sites)]
    names = [f"agent {site.name}", *(f"cell {cell.id}" for cell in site.cells)]
    await moment()
    begun = running.clock.now()
    tell(running, names, signal.SIGSTOP)
    try:
        took = await gone(running, {cell.id for cell in site.cells}, begun)
    finally:
        tell(running, names, signal.SIGCONT)
    await running.serving()
    return took


async def lose_agent(running: Region, number: int) -> int:
    """SIGKILL an agent, and start it again; how often Envoy's weights changed meanwhile."""
    name = f"agent {running.fleet.sites[number % len(running.fleet.sites)].name}"
    weights = await running.settled(3.0)
    await running.kill(name)
    dead = await changes(running, weights, AGENT_DEAD_S)
    await running.restart(name)
    back = await changes(running, weights, AGENT_BACK_S)
    await running.serving()
    return dead + back


async def changes(running: Region, weights: dict[str, int], seconds: float) -> int:
    """How often what Envoy holds differed from one look to the next."""
    found, end = 0, running.clock.now() + seconds
    while running.clock.now() < end:
        now = await running.weights()
        found += now != weights
        weights = now
        await asyncio.sleep(LOOK_S)
    return found


async def gone(running: Region, cells: set[str], begun: float) -> float:
    """Wait until Envoy holds none of the cells; ms since `begun`."""
    while cells & (await running.hosts()).keys():
        if running.clock.now() - begun > PATIENCE_S:
            raise SystemExit(f"Envoy still holds {sorted(cells)}\n{await running.picture()}")
        await asyncio.sleep(LOOK_S)
    return (running.clock.now() - begun) * 1000


async def moment() -> None:
    """Wait for a random moment of the heartbeat."""
    await asyncio.sleep(1.0 + _random.random())


def tell(running: Region, names: Iterable[str], number: signal.Signals) -> None:
    """Send a signal to programs, at once."""
    for name in names:
        os.killpg(running.program(name).pid, number)


@asynccontextmanager
async def region(directory: Path) -> AsyncIterator[Region]:
    """The programs, once all cells serve."""
    fleet = make_fleet(PLAN)
    async with Stack(directory) as stack, open_session() as session:
        running = Region(fleet, stack, session)
        controller = control(fleet, directory)
        await running.start(*(fast(programs.cell(fleet, cell)) for cell in fleet.cells))
        await running.start(*(exporter(site) for site in fleet.sites))
        await running.start(controller)
        await running.start(*(programs.agent(fleet, site, directory) for site in fleet.sites))
        await running.start(await programs.envoy(fleet, directory))
        await stack.wait_ready()
        await running.serving()
        yield running
        await stack.stop()


def fast(spec: Spec) -> Spec:
    """An engine that is loaded at once."""
    return replace(spec, command=(*spec.command, "--loading-seconds", "0"))


def exporter(site: Site) -> Spec:
    """A GPU exporter; that of a roomy site shows engines that do not pre-allocate."""
    spec = programs.exporter(site)
    return replace(spec, command=(*spec.command, *(["--no-preallocate"] if site.name in PLAN.roomy else [])))


def control(fleet: Fleet, directory: Path) -> Spec:
    """The controller with its default times of detection."""
    settings = settings_files.controller(fleet) | {"lifecycle": LIFECYCLE}
    path = settings_files.write(directory / "controller.yaml", settings)
    command = (console_script("headrace-controller"), "run", "--config", str(path))
    ports = (fleet.ports.telemetry, fleet.ports.xds, fleet.ports.api)
    return Spec("controller", command, ports, f"{fleet.api_url}/healthz")


def main() -> None:
    """Run it."""
    asyncio.run(measure(json_path(__doc__ or "")))


if __name__ == "__main__":
    main()
