"""A live run: for each arm in turn, bring the programs up, drive the load, strike, stop."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from headrace_lab.demo import phases
from headrace_lab.demo.display import say
from headrace_lab.demo.observe import Observer, open_session
from headrace_lab.demo.result import Check
from headrace_lab.live import lead, report
from headrace_lab.live.arms import drain_s
from headrace_lab.live.ask import Ask
from headrace_lab.live.assess import assess
from headrace_lab.live.layout import Layout, lay_out
from headrace_lab.live.outcome import Outcome, trust, write
from headrace_lab.live.pages import counters, metrics_pages
from headrace_lab.live.peers import PeerMissingError
from headrace_lab.live.relays import SAID as RELAYED
from headrace_lab.live.relays import RelayedWan
from headrace_lab.live.scripts import script_of
from headrace_lab.live.seen import ArmRun, FaultSeen
from headrace_lab.live.session import Session
from headrace_lab.live.timeline import Timeline
from headrace_lab.live.wan import Wan, may_make_networks, world
from headrace_lab.load.classes import generate
from headrace_lab.load.driver import Driver, Limits, Target
from headrace_lab.stack.launch import leaves
from headrace_lab.stack.program import StackError
from headrace_lab.stack.stack import Stack
from headrace_shared.clock import Clock, SystemClock
from headrace_shared.tasks import Supervisor

AnyWan = Wan | RelayedWan
PROGRESS_S = 10.0
NETWORK_SETTLE_S = 6.0
"""Between two networks: so long do the agents' figures of the old one last."""
NODE_PER_CELL = frozenset({"dcgm-loss"})
"""Scenarios in which each cell has a node, an agent and an exporter of its own."""
REROUTING = frozenset({"failover"})
"""Scenarios whose clients try a failed request again."""


@dataclass
class Collected:
    """What the arms left behind so far; `pages` are metrics pages by arm and program, `failed` says of
    arms that a program failed how."""

    runs: list[ArmRun] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


async def live(ask: Ask, console: Console) -> int:
    """Run a scenario; 0 if its measurement can be trusted, 1 if not.

    An arm that a program fails is told of, and the others' figures are kept. Raises WanError, and StackError
    where no arm ran.
    """
    clock = SystemClock()
    collected = Collected()
    with ExitStack() as contexts:
        run_dir = contexts.enter_context(
            phases.run_directory(console, ask.options.keep_logs, "headrace-live-")
        )
        layout = _laid_out(ask, contexts)
        if layout.uplinks:
            collected.notes.append(RELAYED)
            say(console, RELAYED)
        for name in ask.arms:
            place = run_dir.path / name
            place.mkdir(exist_ok=True)
            await _arm_or_word(ask, name, layout, place, console, clock, collected)
        if collected.failed and not collected.runs:
            raise StackError("; ".join(collected.failed.values()))
        outcome = _outcome(ask, layout, collected)
        run_dir.keep = run_dir.keep or not outcome.worked
    report.show(console, outcome)
    if ask.options.json_path is not None:
        write(ask.options.json_path, outcome, clock, collected.pages)
        say(console, f"result in {ask.options.json_path}")
    return 0 if outcome.worked else 1


def _laid_out(ask: Ask, contexts: ExitStack) -> Layout:
    """Where everything stands; behind paths of real packets, or relays, where there is a network."""
    packets = bool(ask.networks) and may_make_networks()
    return lay_out(
        ask.fleet,
        node_per_cell=ask.name in NODE_PER_CELL,
        places=contexts.enter_context(world(list(ask.fleet.sites))) if packets else {},
        thermal_s=ask.scenario.lead.live.time_constant_s if ask.scenario.lead else 0.0,
        relayed=bool(ask.networks) and not packets,
    )


def _outcome(ask: Ask, layout: Layout, collected: Collected) -> Outcome:
    """What the arms that ran give."""
    figures = assess(collected.runs, ask, layout)
    notes = (*report.notes(ask), *report.findings(ask, figures), *collected.notes)
    return Outcome(
        ask,
        layout,
        tuple(collected.runs),
        figures,
        (*trust(collected.runs, ask), _whole(collected)),
        (*notes, *collected.failed.values()),
    )


def _whole(collected: Collected) -> Check:
    """Whether every arm ran to its end."""
    failed = list(collected.failed)
    return Check("arms that did not run to their end", not failed, ", ".join(failed) or "none", "none")


async def _arm_or_word(
    ask: Ask,
    name: str,
    layout: Layout,
    place: Path,
    console: Console,
    clock: Clock,
    collected: Collected,
) -> None:
    """One arm, or why it was left out or did not run to its end."""
    try:
        try:
            await _arm(ask, name, layout, place, console, clock, collected)
        except PeerMissingError as error:
            collected.notes.append(f"arm {name} was left out: {error}")
            say(console, collected.notes[-1])
    except* StackError as group:
        told = "; ".join(str(error) for error in leaves(group))
        collected.failed[name] = f"arm {name} did not run to its end: {told}"
        say(console, collected.failed[name])


async def _arm(
    ask: Ask,
    name: str,
    layout: Layout,
    place: Path,
    console: Console,
    clock: Clock,
    collected: Collected,
) -> None:
    """One arm, from nothing to nothing; under each network in turn where there are any."""
    say(console, f"arm {name}: starting {len(layout.fleet.cells)} cells, agents, controller and Envoy")
    async with Stack(place, clock) as stack, open_session() as http:
        session = Session(
            arm_name=name,
            arm=ask.arms[name],
            layout=layout,
            gateway=ask.catalogue.gateway,
            stack=stack,
            http=http,
            observer=Observer(http, layout.fleet, clock),
            clock=clock,
            said=lambda text: say(console, f"  {text}"),
        )
        wan = _wan(layout, stack, clock)
        began = clock.now()
        await stack.guarded(_bring_up(ask, session, wan), "bring-up")
        say(console, f"  the fleet serves after {clock.now() - began:.1f} s; load for {ask.seconds:g} s")
        for condition in list(ask.networks) or [""]:
            run = await stack.guarded(_drive(ask, session, wan, condition), "load")
            collected.runs.append(run)
        if not session.arm.peer:
            collected.pages |= await metrics_pages(session)
        await stack.stop()


def _wan(layout: Layout, stack: Stack, clock: Clock) -> AnyWan | None:
    if layout.places:
        return Wan(layout.places, stack, clock)
    return RelayedWan(layout, stack, clock) if layout.uplinks else None


async def _bring_up(ask: Ask, session: Session, wan: AnyWan | None) -> None:
    if wan is not None:
        await wan.start(next(iter(ask.networks.values())))
    await session.bring_up()


async def _drive(ask: Ask, session: Session, wan: AnyWan | None, condition: str) -> ArmRun:
    """Send the load, play the script beside it, watch the controller meanwhile."""
    fleet, clock = session.layout.fleet, session.clock
    arrivals = generate(
        ask.load,
        rps=ask.rps,
        seconds=ask.seconds,
        seed=ask.seed,
        most_tokens=max(plan.max_model_len for plan in session.layout.plans.values()),
    )
    target = Target(fleet.gateway_url, fleet.model, fleet.by_address, session.layout.bytes_per_token)
    driver = Driver(target, clock, limits(ask), ask.seed)
    unloaded = await _unloaded(ask, session, target)
    if wan is not None:
        wan.set_paths(ask.networks[condition], 0.0)
        session.said(f"network {condition}")
        await asyncio.sleep(NETWORK_SETTLE_S)
    start = clock.now()
    line = Timeline(start, clock)
    async with Supervisor() as tasks:
        if not session.arm.peer:
            tasks.spawn("watch the controller", session.observer.watch())
        tasks.spawn("progress", _progress(session, driver, ask.seconds))
        if wan is not None:
            tasks.spawn("network", _play(wan, ask, condition, line))
        script = tasks.spawn("script", _script(ask, session, line))
        records = await driver.run(arrivals)
        faults: list[FaultSeen] = await script
    began = driver.started_at or start
    samples = tuple(s for s in session.observer.history.samples if s.at >= start)
    return ArmRun(
        arm=session.arm_name,
        records=tuple(records),
        start=began,
        faults=tuple(faults),
        samples=samples,
        metrics=await counters(session),
        condition=condition,
        alerts=await lead.alerts(session, line) if session.arm.classes else (),
        unloaded_ms=unloaded,
    )


async def _unloaded(ask: Ask, session: Session, target: Target) -> tuple[float, ...]:
    """Times to first token at the unloaded rate, where the scenario has an SLO to make of them."""
    plan = ask.scenario.lead
    if plan is None:
        return ()
    rps = ask.catalogue.counting.unloaded_rps * len(session.layout.plans)
    session.said(f"unloaded: {rps:g} requests a second for {plan.live.unloaded_s:g} s")
    arrivals = generate(
        ask.load,
        rps=rps,
        seconds=plan.live.unloaded_s,
        seed=ask.seed,
        most_tokens=max(plan.max_model_len for plan in session.layout.plans.values()),
    )
    records = await Driver(target, session.clock, limits(ask), ask.seed).run(arrivals)
    return tuple(r.ttft_ms for r in records if r.ok and r.ttft_ms is not None)


async def _play(wan: AnyWan, ask: Ask, condition: str, line: Timeline) -> None:
    await wan.play(ask.networks[condition], line)


def limits(ask: Ask) -> Limits:
    """The clients' bounds; where rerouting is measured they try again."""
    client = ask.catalogue.client
    again = ask.name in REROUTING
    return Limits(
        in_flight=client.in_flight,
        request_s=client.timeout_s,
        drain_s=drain_s(client),
        attempts=client.attempts if again else 1,
        retry_after_s=client.retry_after_s,
        first_token_s=client.attempt_timeout_s if again else 0.0,
    )


async def _script(ask: Ask, session: Session, line: Timeline) -> list[FaultSeen]:
    return await script_of(ask.name)(session, ask, line)


async def _progress(session: Session, driver: Driver, seconds: float) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        elapsed = 0.0 if driver.started_at is None else session.clock.now() - driver.started_at
        good = sum(r.ok for r in driver.records)
        session.said(
            f"{min(elapsed, seconds):6.1f} s of {seconds:g}: {len(driver.records)} requests over, "
            f"{good} good, {driver.in_flight} in flight"
        )
