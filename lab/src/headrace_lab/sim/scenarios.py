"""The scenarios that a simulation can run at a set rate, and their figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace_lab.live import figures
from headrace_lab.live.ask import Ask
from headrace_lab.live.figures import Figures
from headrace_lab.scenarios import LoadClass
from headrace_lab.sim import faults
from headrace_lab.sim.figures import latency_ratios, prefix_hit_rate, reactions, weight_ratio
from headrace_lab.sim.run import Script, SimRun, arrivals_of, run_arm, setup_of

Said = Callable[[str], None]
SCRIPTS: dict[str, Script] = {"failover": faults.failover, "dcgm-loss": faults.exporters}


def run_arms(ask: Ask, said: Said) -> list[SimRun]:
    """All arms on the scenario's network, one after the other."""
    setup, arrivals = setup_of(ask), arrivals_of(ask)
    runs = []
    for name in ask.arms:
        runs.append(run_arm(ask, name, setup, arrivals))
        said(f"  {_told(runs[-1])}")
    return runs


def run_networks(ask: Ask, said: Said) -> list[SimRun]:
    """All arms on each of the scenario's networks."""
    runs = []
    arrivals = arrivals_of(ask)
    for network in ask.networks:
        setup = setup_of(ask, network)
        for name in ask.arms:
            runs.append(run_arm(ask, name, setup, arrivals, condition=network))
            said(f"  {network}: {_told(runs[-1])}")
    return runs


def run_faults(ask: Ask, said: Said) -> list[SimRun]:
    """All arms under the scenario's faults; clients of `failover` try again."""
    script = SCRIPTS[ask.name]
    setup, arrivals = setup_of(ask, checks=True, reports=True), arrivals_of(ask)
    runs = []
    for name in ask.arms:
        runs.append(run_arm(ask, name, setup, arrivals, script))
        said(f"  {len(runs[-1].seen.faults)} faults; {_told(runs[-1])}")
    return runs


def _told(run: SimRun) -> str:
    records = run.seen.records
    p95 = figures.quantile([r.ttft_ms for r in records if r.ok and r.ttft_ms is not None], 0.95)
    shown = "-" if p95 is None else f"{p95:.0f} ms"
    return f"arm {run.arm}: {len(records)} requests, {sum(r.ok for r in records)} good, P95 TTFT {shown}"


def warm_up_s(ask: Ask) -> float:
    """The scenario's warm-up, and never more than a third of the load."""
    return min(ask.scenario.warm_up_s, ask.seconds / 3)


def common(runs: Sequence[SimRun], ask: Ask) -> Figures:
    """Latencies, success and weights of each arm, P95 and P99 against round-robin's, and P95 against the
    oracle's where it ran at the same rate."""
    plans = {plan.id: plan for plan in ask.fleet.plans}
    found: Figures = {}
    for run in runs:
        found |= figures.latencies(run.seen, warm_up_s(ask)) | prefix_hit_rate(run)
        if run.plans:
            found |= weight_ratio(run, plans, warm_up_s(ask), ask.seconds)
            found[f"pushes.{run.arm}"] = float(sum(at >= 0 for at, _ in run.plans))
    for run in runs:
        if run.arm != "rr":
            for name in ("ttft_p95_ms", "ttft_p99_ms"):
                found |= figures.against(found, name, run.arm, "rr")
    if "weight_ratio.weights" in found:
        found["weight_ratio"] = found["weight_ratio.weights"]
    return found | (latency_ratios(found, list(ask.arms)) if not ask.scenario.finds_sustainable else {})


def capability(runs: Sequence[SimRun], ask: Ask) -> Figures:
    """Leaks, or, in a fleet where one refuses requests of any length, refusals."""
    plans = {plan.id: plan for plan in ask.fleet.plans}
    found = common(runs, ask)
    refusing = any(plan.refuse_share > 0 for plan in plans.values())
    for run in runs:
        count = figures.refusals if refusing else figures.leaks
        found |= count(run.seen, plans, warm_up_s(ask))
    return found


def burst(runs: Sequence[SimRun], ask: Ask) -> Figures:
    """How soon weights move when a burst comes."""
    found = common(runs, ask)
    spikes = ask.load.spikes if isinstance(ask.load, LoadClass) else None
    if spikes is not None:
        starts, at = [], spikes.first_s
        while at < ask.seconds:
            starts.append(at)
            at += spikes.every_s
        for run in runs:
            if run.plans:
                found |= reactions(run, starts, spikes.every_s)
    return found


def failover(runs: Sequence[SimRun], ask: Ask) -> Figures:
    """Detection, reroute times and success after faults, pooled."""
    window_s = ask.faults.window_s if ask.faults else 0.0
    found = figures.detections([run.seen for run in runs])
    for run in runs:
        found |= figures.reroutes(run.seen, window_s)
    for run in runs:
        if run.arm != "rr":
            found |= figures.against(found, "reroute_p99_ms", "rr", run.arm)
    return found


def exporters(runs: Sequence[SimRun], ask: Ask) -> Figures:
    """Success while exporters are silent, and how soon the fallback is in force."""
    return common(runs, ask) | figures.fallbacks([run.seen for run in runs])


def saturation(runs: Sequence[SimRun], ask: Ask) -> Figures:
    """How far apart the arms are where none can carry the load."""
    found = common(runs, ask)
    return found | figures.meeting(found, [run.arm for run in runs])


def jitter(runs: Sequence[SimRun], ask: Ask) -> Figures:
    """What the two network signals gain, by condition."""
    found = figures.network_gain([run.seen for run in runs], warm_up_s(ask))
    for condition in ask.networks:
        found |= latency_ratios(found, list(ask.arms), condition)
    return found
