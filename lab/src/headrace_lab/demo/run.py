"""The demonstration: start, load, kill one engine half way, go on, stop, judge."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from headrace_lab.demo import checks, closing, figures, guide, loops, phases, programs
from headrace_lab.demo.display import Panel, picture, say, show
from headrace_lab.demo.fleet import Fleet, simulated
from headrace_lab.demo.kill import Kill, Order, kill_busy
from headrace_lab.demo.loops import Loops
from headrace_lab.demo.observe import History, Observer, open_session
from headrace_lab.demo.result import Result, records_path, write
from headrace_lab.load.arrivals import Mix, schedule
from headrace_lab.load.driver import REFUSED, Driver, Limits, Target
from headrace_lab.load.records import Record
from headrace_lab.load.summary import arm
from headrace_lab.stack.program import Spec
from headrace_lab.stack.stack import Stack, StopReport
from headrace_shared.clock import Clock, SystemClock
from headrace_shared.tasks import Supervisor

LIMITS = Limits(in_flight=512, request_s=20.0, drain_s=20.0)
MIX = Mix(short_tokens=(100, 600), long_tokens=(1500, 3000), long_share=0.15, max_tokens=(16, 64))
NACKS = "headrace_xds_nacks_total"


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for on the command line."""

    seconds: float
    rps: float
    seed: int
    json_path: Path | None = None
    keep_logs: Path | None = None
    baseline: str = ""
    gateway_port: int = 0
    svg_path: Path | None = None
    picker: bool = False

    @property
    def arm(self) -> str:
        """The name of the arm that runs: the default scorer's, that of both loops, or the baseline's."""
        return self.baseline or ("headrace" if self.picker else "v3")


@dataclass(slots=True)
class Seen:
    """What a run left behind, on the lab's clock."""

    records: list[Record]
    start: float
    kill: Kill
    history: History
    nacks: float | None = None
    loops: Loops = field(default_factory=Loops)

    @property
    def incident(self) -> figures.Incident:
        """The kill on the load's time line."""
        blind = self.kill.out_of_use_ms
        return figures.Incident(
            self.kill.cell, self.kill.at - self.start, None if blind is None else blind / 1e3
        )


async def demo(plan: Plan, console: Console) -> int:
    """Run the demonstration; 0 if it worked, 1 if not. Raises StackError where it cannot run."""
    clock = SystemClock()
    with phases.run_directory(console, plan.keep_logs, "headrace-demo-") as run_dir:
        fleet = simulated(plan.gateway_port)
        async with Stack(run_dir.path, clock) as stack, open_session() as session:
            scene = Scene(plan, fleet, stack, Observer(session, fleet, clock), console, clock)
            await stack.guarded(_bring_up(scene), "bring-up")
            seen = await stack.guarded(_drive(scene), "load")
            say(console, "stopping all programs")
            report = await stack.stop()
        result, shares = judge(scene, seen, report)
        run_dir.keep = run_dir.keep or not result.worked
        _close(scene, seen, report, result, shares)
    return 0 if result.worked else 1


@dataclass(frozen=True, slots=True)
class Scene:
    """All that the steps of one run share."""

    plan: Plan
    fleet: Fleet
    stack: Stack
    observer: Observer
    console: Console
    clock: Clock


async def _bring_up(scene: Scene) -> None:
    fleet, stack, run_dir = scene.fleet, scene.stack, scene.stack.run_dir
    started = scene.clock.now()
    say(scene.console, f"starting {len(fleet.cells)} cells at {len(fleet.sites)} sites; logs in {run_dir}")
    await stack.start(programs.cell(fleet, each) for each in fleet.cells)
    await stack.start(programs.exporter(site) for site in fleet.sites)
    await stack.start([_controller(scene)])
    await stack.start(programs.agent(fleet, site, run_dir) for site in fleet.sites)
    await stack.start([await programs.envoy(fleet, run_dir)])
    await stack.wait_ready()
    await phases.serving(fleet, scene.observer, scene.clock)
    took = scene.clock.now() - started
    say(scene.console, f"all cells are READY and Envoy serves on {fleet.gateway_url} after {took:.1f} s")
    for line in guide.where_to_look(fleet, scene.plan.seconds):
        say(scene.console, line)


def _controller(scene: Scene) -> Spec:
    plan = scene.plan
    return programs.controller(scene.fleet, scene.stack.run_dir, plan.baseline, picker=plan.picker)


async def _drive(scene: Scene) -> Seen:
    """Load, watch and show until the load is over; kill one engine half way."""
    plan, fleet = scene.plan, scene.fleet
    arrivals = schedule(rps=plan.rps, seconds=plan.seconds, seed=plan.seed, mix=MIX)
    target = Target(fleet.gateway_url, fleet.model, fleet.by_address)
    driver = Driver(target, scene.clock, LIMITS, plan.seed)
    panel = Panel(fleet, scene.observer, driver, plan.seconds, scene.clock)
    start = scene.clock.now()
    async with Supervisor() as tasks:
        tasks.spawn("watch the controller", scene.observer.watch())
        tasks.spawn("display", show(panel, scene.console))
        killing = tasks.spawn("kill one engine", _kill_half_way(scene, panel))
        records = await driver.run(arrivals)
        kill: Kill = await killing
        if plan.svg_path is not None:
            plan.svg_path.write_text(picture(panel, "headrace-lab demo"), encoding="utf-8")
    nacks = await phases.last_counter(scene.observer, NACKS)
    both = await loops.read(scene.observer) if plan.picker else Loops()
    return Seen(records, driver.started_at or start, kill, scene.observer.history, nacks, both)


async def _kill_half_way(scene: Scene, panel: Panel) -> Kill:
    fleet, stack = scene.fleet, scene.stack
    await asyncio.sleep(scene.plan.seconds / 2)

    def kill(cell: str) -> None:
        program = stack.program(f"cell {cell}")
        program.kill(planned=True)
        panel.notes.append(f"{panel.elapsed:5.1f} s: SIGKILL to the engine of {cell} (pid {program.pid})")

    addresses = {cell.id: cell.address for cell in fleet.cells}
    order = Order(addresses, scene.plan.seed, kill, removal=not scene.plan.baseline)
    done = await kill_busy(scene.observer, order, scene.clock)
    after = "Envoy never let go of its endpoint"
    if done.detect_ms is not None:
        after = f"its endpoint left Envoy {done.detect_ms:.0f} ms after the kill"
    elif done.out_of_use_ms is not None:
        after = f"Envoy marked it unhealthy {done.out_of_use_ms:.0f} ms after the kill"
    panel.notes.append(f"{panel.elapsed:5.1f} s: {after}; {done.active} requests were open on it")
    return done


def judge(scene: Scene, seen: Seen, report: StopReport) -> tuple[Result, dict[str, figures.Shares]]:
    """Figures and checks of a finished run, and the shares behind one of them."""
    plan = scene.plan
    cells = [cell.id for cell in scene.fleet.cells]
    specs = [program.spec for program in scene.stack.programs]
    shares = figures.shares(seen.records, seen.history, seen.start, cells, seen.incident)
    outcome = _outcome(seen, shares)
    made = [
        *checks.traffic(outcome, baseline=bool(plan.baseline), picker=plan.picker),
        *([loops.check(seen.loops, outcome.requests)] if plan.picker else []),
        checks.nacks(seen.nacks),
        *checks.ends(report, specs),
    ]
    found = _figures(outcome, seen.kill) | checks.end_figures(report, specs)
    if plan.picker:
        found |= seen.loops.figures()
    arms = {plan.arm: arm(seen.records, cells)}
    fleet = scene.fleet.as_json()
    result = Result("demo", plan.seed, plan.seconds, fleet, arms, found, tuple(made), report.exits)
    return result, shares


def _outcome(seen: Seen, shares: dict[str, figures.Shares]) -> checks.Outcome:
    records, incident = seen.records, seen.incident
    return checks.Outcome(
        requests=len(records),
        good=sum(r.ok for r in records),
        not_sent=sum(r.error == REFUSED for r in records),
        unexplained=len(figures.unexplained(records, incident)),
        cut_at_kill=figures.cut_at_kill(records, incident),
        detect_ms=seen.kill.detect_ms,
        post_kill_success=figures.post_kill_success(records, incident),
        gap_points=figures.widest_gap(shares),
        nacks=seen.nacks,
    )


def _figures(outcome: checks.Outcome, kill: Kill) -> dict[str, float | None]:
    return {
        "detect_ms": outcome.detect_ms,
        "out_of_use_ms": kill.out_of_use_ms,
        "in_flight_at_kill": kill.active,
        "cut_at_kill": outcome.cut_at_kill,
        "post_kill_success": outcome.post_kill_success,
        "xds_nacks": outcome.nacks,
        "share_weight_gap_points": outcome.gap_points,
        "unexplained_failures": outcome.unexplained,
    }


def _close(
    scene: Scene, seen: Seen, report: StopReport, result: Result, shares: dict[str, figures.Shares]
) -> None:
    console, plan = scene.console, scene.plan
    closing.latencies(console, f"{result.scenario}, arm {plan.arm}", result.arms[plan.arm])
    closing.shares_table(console, shares, result.arms[plan.arm])
    if plan.picker:
        loops.show(console, seen.loops)
    closing.stops(console, report)
    for record in figures.unexplained(seen.records, seen.incident)[:5]:
        say(
            console, f"  failed: request {record.id} at {record.sent_s:.1f} s: {record.status} {record.error}"
        )
    closing.checks_table(console, result.checks)
    if plan.json_path is not None:
        write(plan.json_path, result, seen.records, scene.clock)
        say(console, f"result in {plan.json_path}, raw records in {records_path(plan.json_path)}")
    kept = str(scene.stack.run_dir)
    for line in guide.what_next(plan.seconds) if result.worked else guide.what_to_check(kept):
        say(console, line)
    closing.verdict(console, result)
