"""What happens to the fleet while the load runs, for each scenario that has faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from headrace_lab.demo import phases
from headrace_lab.demo.kill import GIVE_UP_S
from headrace_lab.demo.observe import TROUBLES
from headrace_lab.live import lead
from headrace_lab.live.ask import Ask
from headrace_lab.live.faults import WHOLE_S, Target, busiest_first, mend, strike, targets, watch
from headrace_lab.live.seen import FaultSeen
from headrace_lab.live.session import Session
from headrace_lab.live.timeline import Timeline
from headrace_lab.scenarios import FaultKind

Script = Callable[[Session, Ask, Timeline], Awaitable[list[FaultSeen]]]
NOTICE_POLL_S = 0.02
DRAIN_POLL_S = 0.1
UPGRADE_CAUSE = "rolling upgrade of the lab"


async def nothing(session: Session, ask: Ask, line: Timeline) -> list[FaultSeen]:
    """No fault at all."""
    return []


async def failover(session: Session, ask: Ask, line: Timeline) -> list[FaultSeen]:
    """Strike one busy target after the other; each fault waits for the fleet to be whole again."""
    assert ask.fault is not None
    assert ask.faults is not None
    order = targets(session.layout, ask.fault, ask.seed)
    found = []
    for turn, at_s in enumerate(ask.faults.times(ask.seconds)):
        await line.until(at_s)
        if not await session.whole(WHOLE_S):
            session.said(f"{line.now_s():6.1f} s: the fleet is not whole again; no fault now")
            continue
        if line.now_s() + ask.faults.window_s > ask.seconds:
            break
        target = busiest_first(order, turn, await session.hosts())
        found.append(await _one_fault(session, ask.kind, ask.fault, target, line))
    return found


async def _one_fault(
    session: Session, kind: str, fault: FaultKind, target: Target, line: Timeline
) -> FaultSeen:
    """Strike, watch, mend when the repair is due; a reloading engine is watched while it loads."""
    seen = FaultSeen(kind, target.cells, line.now_s())
    patience_s = GIVE_UP_S if fault.effect == "reload" else fault.repair_s
    try:
        await strike(session, fault, target)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch(session, seen, line.start, patience_s), name=f"watch {kind}")
            await line.until(seen.at_s + fault.repair_s)
            await mend(session, fault, target)
        seen = watching.result()
    finally:
        session.thaw()
    session.said(f"{seen.at_s:6.1f} s: {kind} of {', '.join(target.cells)}: {told(session, seen)}")
    return replace(seen, repaired_s=line.now_s())


def told(session: Session, seen: FaultSeen) -> str:
    """What Envoy did about a fault, in words."""
    if session.arm.peer:
        return "a peer does not tell what it holds"
    if seen.detect_ms is not None:
        return f"gone from Envoy after {seen.detect_ms:.0f} ms"
    if seen.shunned_s is not None:
        return f"marked unhealthy by Envoy after {(seen.shunned_s - seen.at_s) * 1e3:.0f} ms"
    return "Envoy never let go of it"


async def exporters(session: Session, ask: Ask, line: Timeline) -> list[FaultSeen]:
    """Kill each node's exporter in turn and wait until the controller says that it does without."""
    assert ask.faults is not None
    times = ask.faults.times(ask.seconds)
    found = []
    for site, at_s in zip(session.layout.fleet.sites, times, strict=False):
        await line.until(at_s)
        name = f"exporter {site.node}"
        cells = tuple(cell.id for cell in site.cells)
        seen = FaultSeen("exporter", cells, line.now_s())
        session.kill(name)
        noticed = await _fallback(session, cells, line, seen.at_s + ask.faults.window_s)
        seen = replace(seen, noticed_s=noticed)
        said = "never" if seen.notice_ms is None else f"after {seen.notice_ms:.0f} ms"
        session.said(f"{seen.at_s:6.1f} s: exporter of {site.node} killed; fallback in force {said}")
        await line.until(seen.at_s + ask.faults.window_s - 2)
        await session.restart(name, wait=False)
        found.append(replace(seen, repaired_s=line.now_s()))
    return found


async def _fallback(session: Session, cells: tuple[str, ...], line: Timeline, until_s: float) -> float | None:
    """When the controller first scored all of `cells` without hardware figures."""
    while line.now_s() < until_s:
        try:
            sample = await session.observer.sample()
        except TROUBLES:
            sample = None
        if sample is not None and all(
            cell in sample.cells and sample.cells[cell].fallback == "dcgm_fallback" for cell in cells
        ):
            return line.now_s()
        await asyncio.sleep(NOTICE_POLL_S)
    return None


async def controller_loss(session: Session, ask: Ask, line: Timeline) -> list[FaultSeen]:
    """Kill the controller at the first fault and start it again at the second."""
    assert ask.faults is not None
    times = ask.faults.times(ask.seconds)
    if len(times) < 2:
        session.said("the load is too short for the controller's loss; nothing is struck")
        return []
    await line.until(times[0])
    seen = FaultSeen("controller", (), line.now_s())
    session.kill("controller")
    session.said(f"{seen.at_s:6.1f} s: SIGKILL to the controller")
    await line.until(times[1])
    await session.restart("controller")
    back = line.now_s()
    session.said(f"{back:6.1f} s: the controller runs again")
    within = max(1.0, ask.seconds - back)
    await phases.serving(session.layout.fleet, session.observer, session.clock, within)
    noticed = line.now_s()
    session.said(f"{noticed:6.1f} s: all cells are READY again")
    return [replace(seen, noticed_s=noticed, repaired_s=back)]


async def rolling_upgrade(session: Session, ask: Ask, line: Timeline) -> list[FaultSeen]:
    """Drain, stop, start and take back one cell after the other."""
    assert ask.faults is not None
    found = []
    times = ask.faults.times(ask.seconds)
    for cell, at_s in zip(session.layout.fleet.cells, times, strict=False):
        await line.until(at_s)
        if not await session.whole(WHOLE_S):
            session.said(f"{line.now_s():6.1f} s: the fleet is not whole again; {cell.id} is left out")
            continue
        seen = FaultSeen("upgrade", (cell.id,), line.now_s())
        url = f"{session.layout.fleet.api_url}/api/v1/cells/{cell.id}"
        await session.post(f"{url}/drain", {"cause": UPGRADE_CAUSE}, 202)
        await _drained(session, cell.id, line, seen.at_s + ask.faults.window_s)
        noticed = line.now_s()
        await session.program(f"cell {cell.id}").stop()
        await session.restart(f"cell {cell.id}")
        await session.post(f"{url}/undrain", {"cause": UPGRADE_CAUSE}, 202)
        session.said(f"{seen.at_s:6.1f} s: {cell.id} drained in {noticed - seen.at_s:.1f} s and restarted")
        found.append(replace(seen, noticed_s=noticed, repaired_s=line.now_s()))
    return found


async def _drained(session: Session, cell: str, line: Timeline, until_s: float) -> None:
    """Wait until a drained cell has nothing in flight any more."""
    while line.now_s() < until_s:
        try:
            state = (await session.observer.sample()).cells[cell].state
        except TROUBLES:
            state = ""
        if state == "TERMINATED":
            return
        await asyncio.sleep(DRAIN_POLL_S)


SCRIPTS: dict[str, Script] = {
    "lead-time": lead.strain,
    "failover": failover,
    "dcgm-loss": exporters,
    "controller-loss": controller_loss,
    "rolling-upgrade": rolling_upgrade,
}


def script_of(name: str) -> Script:
    """The script of a scenario; most have none."""
    return SCRIPTS.get(name, nothing)
