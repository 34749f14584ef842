"""Run a scenario, show it, write it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from headrace_lab.demo.display import number, say
from headrace_lab.live.ask import Ask
from headrace_lab.live.figures import Figures
from headrace_lab.live.report import few_faults, findings
from headrace_lab.load.summary import arm as summary
from headrace_lab.sim import scenarios
from headrace_lab.sim.fleets import run_fleet
from headrace_lab.sim.lead import run_lead
from headrace_lab.sim.result import as_json, label, write
from headrace_lab.sim.run import SimRun
from headrace_lab.tables import new_table
from headrace_shared.clock import Clock

Said = Callable[[str], None]
Assess = Callable[[Sequence[SimRun], Ask], Figures]

ASSESS: dict[str, Assess] = {
    "capability": scenarios.capability,
    "burst": scenarios.burst,
    "jitter": scenarios.jitter,
    "failover": scenarios.failover,
    "dcgm-loss": scenarios.exporters,
    "saturation": scenarios.saturation,
}


def simulate(ask: Ask, tier: str, hours: float, console: Console, clock: Clock) -> None:
    """Run a scenario and show its figures; writes them where a path was given. `hours` are those of a
    healthy fleet in `lead-time`."""
    say(console, f"{ask.name}, load {ask.load_name}, seed {ask.seed}, in simulation")
    runs, figures, more = _run(ask, tier, hours, lambda text: say(console, text))
    show(console, ask, runs, figures)
    notes = [*few_faults(ask), *findings(ask, figures)]
    for note in notes:
        say(console, f"note: {note}")
    if ask.options.json_path is not None:
        write(ask.options.json_path, as_json(ask, runs, figures, more | {"notes": notes}, clock), runs)
        say(console, f"result in {ask.options.json_path}")


def _run(ask: Ask, tier: str, hours: float, said: Said) -> tuple[Sequence[SimRun], Figures, dict[str, Any]]:
    if ask.scenario.finds_sustainable:
        result = run_fleet(ask, tier, said)
        searches = {name: asdict(found) for name, found in result.found.items()}
        return result.runs, result.figures, {"tier": tier, "searches": searches}
    if ask.scenario.lead is not None:
        warned, figures = run_lead(ask, tier, hours, said)
        return [], figures, {"tier": tier, "stresses": [asdict(each) for each in warned]}
    run = scenarios.run_networks if ask.scenario.networks else scenarios.run_arms
    runs = (scenarios.run_faults if ask.name in scenarios.SCRIPTS else run)(ask, said)
    return runs, ASSESS.get(ask.name, scenarios.common)(runs, ask), {}


def show(console: Console, ask: Ask, runs: Sequence[SimRun], figures: Figures) -> None:
    """The arms as a table, then the figures."""
    cells = [plan.id for plan in ask.fleet.plans]
    table = new_table(left=("arm",), right=("requests", "success", "TTFT p50", "p95", "p99", "e2e p95"))
    for run in runs:
        found = summary(run.seen.records, cells)
        ttft = found["ttft_ms"]
        table.add_row(
            label(run),
            str(found["requests"]),
            number(found["success_rate"], ".4f"),
            *(number(ttft[name], ".0f") for name in ("p50", "p95", "p99")),
            number(found["e2e_ms"]["p95"], ".0f"),
        )
    console.print(table)
    shown = new_table(left=("figure",), right=("value",))
    for name, value in figures.items():
        shown.add_row(name, number(value, ".4g"))
    console.print(shown)
