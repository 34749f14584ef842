"""The demonstration over real engines: the same agent, controller and Envoy, and too-long prompts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from headrace_lab.demo import checks, closing, phases, programs
from headrace_lab.demo.display import Panel, number, say, show
from headrace_lab.demo.fleet import Fleet
from headrace_lab.demo.observe import TROUBLES, Observer, open_session
from headrace_lab.demo.result import Result, records_path, write
from headrace_lab.load.arrivals import Mix, schedule
from headrace_lab.load.driver import Driver, Limits, Target
from headrace_lab.load.records import Record
from headrace_lab.load.summary import arm
from headrace_lab.real import engines, environment, figures
from headrace_lab.stack.stack import Stack, StopReport
from headrace_lab.tables import new_table
from headrace_shared.clock import Clock, SystemClock
from headrace_shared.tasks import Supervisor

ARM = "v3"
LIMITS = Limits(in_flight=256, request_s=60.0, drain_s=60.0)
MIX = Mix(short_tokens=(20, 120), long_tokens=(1100, 1400), long_share=0.5, max_tokens=(4, 8))
"""Long ones pass the small engine's 1,024 tokens by little: two cores carry three engines."""
NACKS = "headrace_xds_nacks_total"
SETTLE_S = 15.0
SETTLED_SHARE = 0.9
SIGNALS = ("queue_depth", "ttft_p95_s", "error_rate", "kv_fill", "rtt_ms")


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for on the command line."""

    seconds: float
    rps: float
    seed: int
    cache: Path
    json_path: Path | None = None
    keep_logs: Path | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """All that the steps of one run share."""

    plan: Plan
    fleet: Fleet
    stack: Stack
    observer: Observer
    console: Console
    clock: Clock

    def tell(self, text: str) -> None:
        """A line of progress."""
        say(self.console, text)


@dataclass(slots=True)
class Seen:
    """What a run left behind."""

    records: list[Record]
    weight_start: int
    nacks: float | None
    engine_400s: float | None


async def demo_real(plan: Plan, console: Console) -> int:
    """Run it; 0 if it worked, 1 if not. Raises StackError where it cannot run."""
    clock = SystemClock()
    built = await environment.ensure(plan.cache, lambda text: say(console, text), clock)
    with phases.run_directory(console, plan.keep_logs, "headrace-demo-real-") as run_dir:
        fleet = engines.real()
        async with Stack(run_dir.path, clock) as stack, open_session() as session:
            scene = Scene(plan, fleet, stack, Observer(session, fleet, clock), console, clock)
            bring_up = engines.bring_up(fleet, built, stack, scene.tell, clock)
            await stack.guarded(bring_up, "engines")
            await stack.guarded(_middle(scene), "bring-up")
            seen = await stack.guarded(_drive(scene), "load")
            scene.tell("stopping all programs")
            report = await stack.stop()
        result = judge(scene, seen, report)
        run_dir.keep = run_dir.keep or not result.worked
        _close(scene, seen, report, result)
    return 0 if result.worked else 1


async def _middle(scene: Scene) -> None:
    """Start controller, agents and Envoy over the engines and wait until all serves."""
    fleet, stack, run_dir = scene.fleet, scene.stack, scene.stack.run_dir
    least, most = await engines.check_sizes(fleet, MIX.long_tokens, MIX.max_tokens[1])
    scene.tell(f"by the engine's own tokenizer, long prompts have {least} to {most} tokens")
    # What is shown is the error signal: with classes no long prompt would come to the small engine.
    await stack.start([programs.controller(fleet, run_dir, classes=False)])
    await stack.start(programs.agent(fleet, site, run_dir) for site in fleet.sites)
    await stack.start([await programs.envoy(fleet, run_dir)])
    await stack.wait_ready()
    await phases.serving(fleet, scene.observer, scene.clock)
    await _settle(scene)
    scene.tell(f"all engines are READY and Envoy serves on {fleet.gateway_url}")


async def _settle(scene: Scene) -> None:
    """Wait for the end of the weights' first rise, so that its fall is not mistaken for one."""
    deadline = scene.clock.now() + SETTLE_S
    while scene.clock.now() < deadline:
        try:
            weights = [view.weight for view in (await scene.observer.sample()).cells.values()]
        except TROUBLES:
            weights = []
        if weights and min(weights) >= SETTLED_SHARE * max(weights) and max(weights) > 1:
            return
        await asyncio.sleep(phases.STEP_S)


async def _drive(scene: Scene) -> Seen:
    plan, fleet = scene.plan, scene.fleet
    arrivals = schedule(rps=plan.rps, seconds=plan.seconds, seed=plan.seed, mix=MIX)
    driver = Driver(Target(fleet.gateway_url, fleet.model, fleet.by_address), scene.clock, LIMITS, plan.seed)
    panel = Panel(fleet, scene.observer, driver, plan.seconds, scene.clock)
    first = await scene.observer.sample()
    async with Supervisor() as tasks:
        tasks.spawn("watch the controller", scene.observer.watch())
        tasks.spawn("display", show(panel, scene.console))
        records = await driver.run(arrivals)
    small = fleet.cell(engines.SMALL)
    await scene.observer.sample()
    return Seen(
        records,
        first.cells[small.id].weight,
        await phases.last_counter(scene.observer, NACKS),
        await engines.counted_by_engine(small, "4xx"),
    )


def judge(scene: Scene, seen: Seen, report: StopReport) -> Result:
    """Figures and checks of a finished run."""
    plan = scene.plan
    cells = [cell.id for cell in scene.fleet.cells]
    specs = [program.spec for program in scene.stack.programs]
    outcome = _outcome(scene, seen, cells)
    made = [*figures.checks(outcome), checks.nacks(seen.nacks), *checks.ends(report, specs)]
    found = figures.as_figures(outcome) | checks.end_figures(report, specs)
    arms = {ARM: arm(seen.records, cells)}
    fleet = scene.fleet.as_json()
    return Result("demo-real", plan.seed, plan.seconds, fleet, arms, found, tuple(made), report.exits)


def _outcome(scene: Scene, seen: Seen, cells: list[str]) -> figures.Outcome:
    history, small = scene.observer.history, engines.SMALL
    last = history.last
    refused = sum(figures.is_refusal(r, small) for r in seen.records)
    return figures.Outcome(
        long_sent=sum(r.kind == "long" for r in seen.records),
        long_share_last=figures.long_share(seen.records, small, scene.plan.seconds - figures.LAST_S),
        refused=refused,
        failed=sum(not r.ok for r in seen.records) - refused,
        engine_400s=seen.engine_400s,
        error_rate_seen=figures.error_rate_seen(history, small),
        weight_start=seen.weight_start,
        weight_end=last.cells[small].weight if last and small in last.cells else 0,
        incomplete=figures.incomplete(last, cells),
        nacks=seen.nacks,
    )


def _close(scene: Scene, seen: Seen, report: StopReport, result: Result) -> None:
    console, plan = scene.console, scene.plan
    closing.latencies(console, f"{result.scenario}, arm {ARM}", result.arms[ARM])
    console.print(cells_table(scene, seen))
    closing.stops(console, report)
    small = engines.SMALL
    for record in [r for r in seen.records if not r.ok and not figures.is_refusal(r, small)][:5]:
        scene.tell(f"  failed: request {record.id} at {record.sent_s:.1f} s: {record.status} {record.error}")
    closing.checks_table(console, result.checks)
    if plan.json_path is not None:
        write(plan.json_path, result, seen.records, scene.clock)
        scene.tell(f"result in {plan.json_path}, raw records in {records_path(plan.json_path)}")
    closing.verdict(console, result)


def cells_table(scene: Scene, seen: Seen) -> Table:
    """Each engine as the controller saw it at the end, and what it was sent."""
    table = new_table(
        "engines, as the controller saw them at the end",
        left=("cell", "engine", "state"),
        right=("max len", "pressure", "weight", *SIGNALS, "requests", "too long", "400s"),
    )
    last = scene.observer.history.last
    for cell in scene.fleet.cells:
        mine = [r for r in seen.records if r.cell == cell.id]
        counts = [len(mine), sum(r.kind == "long" for r in mine), sum(r.status == 400 for r in mine)]
        view = last.cells.get(cell.id) if last else None
        known = ["-"] * (4 + len(SIGNALS))
        if view is not None:
            known = [view.engine, view.state, str(cell.max_model_len), number(view.pressure, ".3f")]
            known += [str(view.weight), *(number(view.signals.get(name), ".3g") for name in SIGNALS)]
        table.add_row(cell.id, *known, *map(str, counts))
    return table
