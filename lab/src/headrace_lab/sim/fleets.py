"""Fleet scenarios: what each arm can sustain, and how it does below saturation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace_lab.live.ask import Ask
from headrace_lab.live.figures import Figures
from headrace_lab.sim.figures import ratios
from headrace_lab.sim.run import SimRun, setup_of
from headrace_lab.sim.scenarios import common, run_arms
from headrace_lab.sim.sustain import Found, Outcome, Search, mean_prompt_s, measure, unloaded_p95
from headrace_lab.sim.world import Setup

Said = Callable[[str], None]
GUESS = 0.7
"""Of the fleet's prefill rate, where the first search begins."""
BELOW_SATURATION = 0.7
"""Of round-robin's sustainable rate, at which latencies are compared."""


@dataclass(frozen=True)
class FleetResult:
    """The SLO in seconds, what was found for each arm, and the arms' runs below saturation."""

    unloaded_p95_s: float
    slo_s: float
    found: dict[str, Found]
    rps: float
    runs: list[SimRun]
    figures: Figures


def run_fleet(ask: Ask, tier: str, said: Said) -> FleetResult:
    """Find the sustainable rate of each arm at one tier, then run all at one rate below it."""
    setup, counting = setup_of(ask), ask.catalogue.counting
    unloaded = unloaded_p95(setup, ask.catalogue.arm("rr"), ask.load, counting, ask.seed)
    slo_s = unloaded * ask.catalogue.tiers[tier]
    said(f"unloaded P95 TTFT {unloaded * 1e3:.0f} ms; SLO of tier {tier}: {slo_s * 1e3:.0f} ms")
    guess = GUESS / mean_prompt_s(setup.fleet, ask.load)
    found: dict[str, Found] = {}
    for name in ask.arms:
        search = _search(ask, setup, name, slo_s, said)
        found[name] = search.find(slo_s, guess)
        said(f"arm {name}: sustains {found[name].rps:.2f} RPS")
        guess = guess if math.isnan(found[name].rps) else found[name].rps
    sustained = {name: each.rps for name, each in found.items()}
    rps = ask.options.rps or BELOW_SATURATION * min(v for v in sustained.values() if not math.isnan(v))
    said(f"all arms at {rps:.2f} RPS, below saturation")
    below = replace(ask, rps=rps)
    runs = run_arms(below, said)
    shown = ratios(sustained) | {"slo_ms": slo_s * 1e3, "unloaded_p95_ms": unloaded * 1e3}
    return FleetResult(unloaded, slo_s, found, rps, runs, shown | _below(runs, below))


def _search(ask: Ask, setup: Setup, name: str, slo_s: float, said: Said) -> Search:
    arm, counting = ask.arms[name], ask.catalogue.counting

    def run(rps: float, slo: float) -> Outcome:
        return measure(setup, arm, ask.load, counting, rps, ask.seed, slo)

    def note(outcome: Outcome) -> None:
        said(f"  arm {name}: {_told(outcome, slo_s)}")

    return Search(run, counting, note)


def _below(runs: list[SimRun], ask: Ask) -> Figures:
    return common(runs, ask) | {"below_saturation_rps": ask.rps}


def _told(outcome: Outcome, slo_s: float) -> str:
    if not outcome.exact:
        return f"{outcome.rps:.2f} RPS: P95 TTFT above {slo_s * 1e3:.0f} ms"
    p95 = "-" if math.isnan(outcome.p95_s) else f"{outcome.p95_s * 1e3:.0f} ms"
    return f"{outcome.rps:.2f} RPS: P95 TTFT {p95}, success {outcome.success:.4f}, {outcome.samples} samples"
