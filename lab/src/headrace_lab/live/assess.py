"""Which figures each scenario has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace_lab.live import figures, lead
from headrace_lab.live.ask import Ask
from headrace_lab.live.figures import Figures
from headrace_lab.live.layout import Layout
from headrace_lab.live.seen import ArmRun
from headrace_lab.scenarios import LoadClass

Assess = Callable[[Sequence[ArmRun], Ask, Layout], Figures]


def common(runs: Sequence[ArmRun], ask: Ask, layout: Layout) -> Figures:
    """Latencies and success of each arm, weights, and P95 and P99 against round-robin's."""
    found: Figures = {}
    for run in runs:
        found |= figures.latencies(run, _warm_up_s(ask))
        if ask.arms[run.arm].lifecycle:
            found |= figures.weight_ratio(run, layout.plans, _warm_up_s(ask))
    for run in runs:
        if run.arm != "rr" and "rr" in ask.arms:
            for name in ("ttft_p95_ms", "ttft_p99_ms"):
                found |= figures.against(found, name, run.arm, "rr")
    if ask.arms.get("weights"):
        found["weight_ratio"] = found.get("weight_ratio.weights")
    return found


def capability(runs: Sequence[ArmRun], ask: Ask, layout: Layout) -> Figures:
    """Leaks, or, in a fleet where one refuses requests of any length, refusals."""
    found = common(runs, ask, layout)
    refusing = any(plan.refuse_share > 0 for plan in layout.plans.values())
    for run in runs:
        if refusing:
            found |= figures.refusals(run, layout.plans, _warm_up_s(ask))
        else:
            found |= figures.leaks(run, layout.plans, _warm_up_s(ask))
    return found


def failover(runs: Sequence[ArmRun], ask: Ask, layout: Layout) -> Figures:
    """Detection, reroute times and success after faults, pooled."""
    window_s = ask.faults.window_s if ask.faults else 0.0
    found = figures.detections([run for run in runs if not ask.arms[run.arm].peer])
    for run in runs:
        found |= figures.reroutes(run, window_s)
    for run in runs:
        if run.arm != "rr" and "rr" in ask.arms:
            found |= figures.against(found, "reroute_p99_ms", "rr", run.arm)
    return found


def exporters(runs: Sequence[ArmRun], ask: Ask, layout: Layout) -> Figures:
    """Success while exporters are away, and how soon the fallback is in force."""
    return common(runs, ask, layout) | figures.fallbacks(runs)


def with_success(runs: Sequence[ArmRun], ask: Ask, layout: Layout) -> Figures:
    """Success while the fleet is worked on, over the whole load and in the faults' windows."""
    found = common(runs, ask, layout)
    window_s = ask.faults.window_s if ask.faults else 0.0
    for run in runs:
        struck = figures.after_faults(run, window_s)
        found[f"success_whole.{run.arm}"] = figures.share([r.first_ok for r in run.records])
        found[f"success_meanwhile.{run.arm}"] = figures.share([r.first_ok for r in struck])
        found[f"acts.{run.arm}"] = float(len(run.faults))
        found |= {
            f"{name}.{run.arm}": value for name, value in figures.notices(run.faults, "taken_ms").items()
        }
    return found


def burst(runs: Sequence[ArmRun], ask: Ask, layout: Layout) -> Figures:
    """How soon weights move when a burst comes."""
    found = common(runs, ask, layout)
    load = ask.load
    spikes = load.spikes if isinstance(load, LoadClass) else None
    starts: list[float] = []
    if spikes is not None:
        at = spikes.first_s
        while at < ask.seconds:
            starts.append(at)
            at += spikes.every_s
    for run in runs:
        if starts and spikes is not None and ask.arms[run.arm].lifecycle:
            found |= figures.reactions(run, starts, spikes.every_s)
    return found


def saturation(runs: Sequence[ArmRun], ask: Ask, layout: Layout) -> Figures:
    """How far apart the arms are where none can carry the load."""
    found = common(runs, ask, layout)
    return found | figures.meeting(found, [run.arm for run in runs])


def jitter(runs: Sequence[ArmRun], ask: Ask, layout: Layout) -> Figures:
    """What the two network signals gain, by condition; no gain where agents could not measure the paths."""
    found = figures.network_gain(runs, _warm_up_s(ask))
    if layout.uplinks:
        return {name: value for name, value in found.items() if not name.startswith("network_gain")}
    return found


def lead_time(runs: Sequence[ArmRun], ask: Ask, layout: Layout) -> Figures:
    """How long early warnings come before clients would feel a stress."""
    plan = ask.scenario.lead
    assert plan is not None
    return common(runs, ask, layout) | lead.lead_figures(runs, plan, ask.catalogue.tiers[plan.live.tier])


ASSESS: dict[str, Assess] = {
    "lead-time": lead_time,
    "capability": capability,
    "failover": failover,
    "dcgm-loss": exporters,
    "controller-loss": with_success,
    "rolling-upgrade": with_success,
    "burst": burst,
    "jitter": jitter,
    "saturation": saturation,
}


def assess(runs: Sequence[ArmRun], ask: Ask, layout: Layout) -> Figures:
    """The figures of a run of its scenario."""
    return ASSESS.get(ask.name, common)(runs, ask, layout) | figures.lateness(runs)


def _warm_up_s(ask: Ask) -> float:
    """The scenario's warm-up, and never more than a third of the load."""
    return min(ask.scenario.warm_up_s, ask.seconds / 3)
