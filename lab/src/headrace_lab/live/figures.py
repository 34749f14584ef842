"""Figures of live runs: pure functions of what was seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from headrace_lab.live.seen import ArmRun, FaultSeen
from headrace_lab.load.records import Record
from headrace_lab.scenarios import CellPlan

Figures = dict[str, float | None]
BEFORE_S = 3.0
"""What is sent in so many seconds before a fault counts as sent without one."""
SETTLE_S = 3.0
"""What is sent in the first seconds of a load is left out: connections are made then."""


def quantile(values: Sequence[float], q: float) -> float | None:
    """A quantile, interpolated; None where there is no value."""
    return float(np.quantile(np.asarray(values), q)) if values else None


def counted(run: ArmRun, warm_up_s: float) -> list[Record]:
    """Records of the requests due after the warm-up."""
    return [r for r in run.records if r.due_s >= warm_up_s]


def latencies(run: ArmRun, warm_up_s: float) -> Figures:
    """TTFT quantiles of good requests and success, after the warm-up, with the arm as suffix."""
    records = counted(run, warm_up_s)
    ttft = [r.ttft_ms for r in records if r.ok and r.ttft_ms is not None]
    named = {f"ttft_p{round(q * 100)}_ms.{run.arm}": quantile(ttft, q) for q in (0.5, 0.95, 0.99)}
    return {**named, f"success.{run.arm}": share([r.first_ok for r in records])}


def share(outcomes: Sequence[bool]) -> float | None:
    """Share of True, 0 … 1; None where there is none."""
    return sum(outcomes) / len(outcomes) if outcomes else None


# Capability.


def leaks(run: ArmRun, plans: Mapping[str, CellPlan], warm_up_s: float) -> Figures:
    """`leak`: of the requests longer than the smallest cell's limit, the share that a smaller cell
    refused; `long_success`: the share of them answered whole at the first attempt. `_whole` counts the
    warm-up too."""
    limit = min(plan.max_model_len for plan in plans.values())
    figures: Figures = {}
    for suffix, since_s in (("", warm_up_s), ("_whole", 0.0)):
        long = [r for r in counted(run, since_s) if r.prompt_tokens + r.max_tokens > limit]
        leaked = [r.first_status == 400 and _too_small(r, plans) for r in long]
        figures[f"leak{suffix}.{run.arm}"] = share(leaked)
        figures[f"long_success{suffix}.{run.arm}"] = share([r.first_ok for r in long])
    return figures


def _too_small(record: Record, plans: Mapping[str, CellPlan]) -> bool:
    plan = plans.get(record.first_cell)
    return plan is not None and record.prompt_tokens + record.max_tokens > plan.max_model_len


def refusals(run: ArmRun, plans: Mapping[str, CellPlan], warm_up_s: float) -> Figures:
    """`refused`: the share of all requests that a cell refused which refuses some of any length."""
    refusing = {cell for cell, plan in plans.items() if plan.refuse_share > 0}
    records = counted(run, warm_up_s)
    refused = [r.first_status == 400 and r.first_cell in refusing for r in records]
    return {f"refused.{run.arm}": share(refused)}


# Faults.


def detections(runs: Iterable[ArmRun]) -> Figures:
    """Times from fault to endpoints gone, pooled over faults: by arm, and without one those of the chief arm.

    A fault that was never seen makes P99 absent, for its time is not known; `undetected` counts them.
    """
    figures: Figures = {}
    seen: list[str] = []
    for run in runs:
        if not run.faults:
            continue
        times = [f.detect_ms for f in run.faults if f.detect_ms is not None]
        missed = len(run.faults) - len(times)
        marked = [(f.shunned_s - f.at_s) * 1e3 for f in run.faults if f.shunned_s is not None]
        figures[f"faults.{run.arm}"] = float(len(run.faults))
        figures[f"undetected.{run.arm}"] = float(missed)
        figures[f"marked_ms_p50.{run.arm}"] = quantile(marked, 0.5)
        if times:
            seen.append(run.arm)
            p50, p99 = quantile(times, 0.5), quantile(times, 0.99) if not missed else None
            figures |= {f"detect_ms_p50.{run.arm}": p50, f"detect_ms_p99.{run.arm}": p99}
    for name in ("detect_ms_p50", "detect_ms_p99"):
        if seen:
            figures[name] = figures[f"{name}.{chief(seen)}"]
    return figures


def chief(arms: Sequence[str]) -> str:
    """Whose figures stand without an arm's name: those of `weights`, or else of the last arm."""
    return "weights" if "weights" in arms else arms[-1]


def reroute_ms(record: Record) -> float:
    """From the first attempt to the first token; for a request that was never answered, to its end."""
    return record.ttft_ms if record.ok and record.ttft_ms is not None else record.e2e_ms


def after_faults(run: ArmRun, window_s: float) -> list[Record]:
    """Requests due within `window_s` after a fault."""
    return [r for r in run.records if any(f.at_s < r.due_s <= f.at_s + window_s for f in run.faults)]


def without_faults(run: ArmRun) -> list[Record]:
    """Requests due before the first fault, or shortly before another when the fleet was whole again.

    One that was under way when a fault came, and lost its answer to it, belongs to neither side.
    """
    if not run.faults:
        return list(run.records)
    first = run.faults[0].at_s
    return [
        r
        for r in run.records
        if (SETTLE_S <= r.due_s <= first or any(f.at_s - BEFORE_S <= r.due_s <= f.at_s for f in run.faults))
        and (r.first_ok or not any(r.due_s <= f.at_s <= r.ended_s for f in run.faults))
    ]


def reroutes(run: ArmRun, window_s: float) -> Figures:
    """`reroute_p99_ms`: the P99 time to a first token of requests sent after a fault, in excess of the
    same quantile without one, and P95 likewise; `post_kill_success`: their success at the first attempt."""
    struck = after_faults(run, window_s)
    figures: Figures = {f"faults.{run.arm}": float(len(run.faults))}
    for name, q in (("p95", 0.95), ("p99", 0.99)):
        after = quantile([reroute_ms(r) for r in struck], q)
        usual = quantile([reroute_ms(r) for r in without_faults(run)], q)
        excess = None if after is None or usual is None else after - usual
        figures |= {
            f"reroute_{name}_ms.{run.arm}": excess,
            f"after_fault_{name}_ms.{run.arm}": after,
            f"without_fault_{name}_ms.{run.arm}": usual,
        }
    return figures | {
        f"post_kill_success.{run.arm}": share([r.first_ok for r in struck]),
        f"after_fault_requests.{run.arm}": float(len(struck)),
    }


def against(figures: Figures, name: str, over: str, under: str) -> Figures:
    """`NAME_ratio.OVER_UNDER`: one arm's figure over another's; absent where it makes no sense."""
    top, bottom = figures.get(f"{name}.{over}"), figures.get(f"{name}.{under}")
    sensible = top is not None and bottom is not None and bottom > 0
    return {f"{name}_ratio.{over}_{under}": top / bottom if sensible and top and bottom else None}


def notices(faults: Sequence[FaultSeen], name: str) -> Figures:
    """`NAME_max` and `NAME_mean` of the times until the controller said so; absent if it once did not."""
    times = [f.notice_ms for f in faults if f.notice_ms is not None]
    whole = bool(times) and len(times) == len(faults)
    return {
        f"{name}_max": max(times) if whole else None,
        f"{name}_mean": sum(times) / len(times) if whole else None,
        f"{name}_faults": float(len(faults)),
    }


def fallbacks(runs: Sequence[ArmRun]) -> Figures:
    """`success` and `fallback_ms_*` by arm, and without one those of the chief arm."""
    figures: Figures = {}
    for run in runs:
        own = notices(run.faults, "fallback_ms")
        own["success_whole"] = share([r.first_ok for r in run.records])
        figures |= {f"{name}.{run.arm}": value for name, value in own.items()}
        if run.arm == chief([each.arm for each in runs]):
            figures |= own | {"success": own["success_whole"]}
    figures.pop("success_whole", None)
    return figures


# Weights.


def mean_weights(run: ArmRun, since_s: float) -> dict[str, float]:
    """Each cell's weight, averaged over the controller's views since then."""
    kept = [s for s in run.samples if s.at - run.start >= since_s]
    totals: dict[str, list[int]] = {}
    for sample in kept:
        for cell, view in sample.cells.items():
            totals.setdefault(cell, []).append(view.weight)
    return {cell: sum(weights) / len(weights) for cell, weights in totals.items()}


def weight_ratio(run: ArmRun, plans: Mapping[str, CellPlan], since_s: float) -> Figures:
    """`weight_ratio`: mean weight of the kind of cell with most over that with least, where a kind is
    cells of one GPU, speed, link and limit."""
    kinds: dict[tuple[object, ...], list[float]] = {}
    for cell, weight in mean_weights(run, since_s).items():
        if cell in plans:
            p = plans[cell]
            kinds.setdefault((p.gpu, p.speed, p.pcie_contention, p.max_model_len), []).append(weight)
    means = [sum(weights) / len(weights) for weights in kinds.values()]
    return {f"weight_ratio.{run.arm}": max(means) / min(means) if means and min(means) > 0 else None}


def reactions(run: ArmRun, starts_s: Sequence[float], within_s: float) -> Figures:
    """How soon weights move after bursts, by the controller's views, which are 0.2 s apart."""
    seen = [(s.at - run.start, {cell: view.weight for cell, view in s.cells.items()}) for s in run.samples]
    changes = [at for (_, before), (at, after) in pairwise(seen) if before != after]
    return reaction_figures(run.arm, changes, starts_s, within_s)


def reaction_figures(
    arm: str, changes_s: Sequence[float], starts_s: Sequence[float], within_s: float
) -> Figures:
    """`reaction_p95_ms`: from each start of a burst to the first change of weights after it; absent where a
    burst was not answered within `within_s`, for its time is not known.

    Weights move without a burst too, so `reaction_usual_p95_ms` is the same from the middle between two
    bursts: a reaction that takes as long says nothing.
    """
    figures: Figures = {}
    for name, shift_s in (("reaction", 0.0), ("reaction_usual", within_s / 2)):
        times = [_next_change(changes_s, start + shift_s, within_s) for start in starts_s]
        known = [each for each in times if each is not None]
        p95 = quantile(known, 0.95) if len(known) == len(times) else None
        figures[f"{name}_p95_ms.{arm}"] = None if p95 is None else p95 * 1e3
        if not shift_s:
            figures[f"reactions_seen.{arm}"] = float(len(known))
    return figures | {f"bursts.{arm}": float(len(starts_s))}


def _next_change(changes_s: Sequence[float], start_s: float, within_s: float) -> float | None:
    return next((at - start_s for at in changes_s if start_s < at <= start_s + within_s), None)


# The network.

NETWORK_GAINS = (
    ("network_gain", "v3", "v2"),
    ("network_gain_vs_rr", "v3", "rr"),
    ("network_gain_weights", "weights", "v2"),
    ("network_gain_bound", "oracle", "v2"),
)
"""A figure's name, whose P95 it is by, and against whose."""


def network_gain(runs: Sequence[ArmRun], warm_up_s: float) -> Figures:
    """`network_gain.CONDITION`: by how much the network signals alone lower P95 TTFT: 1 - v3 / v2;
    `network_gain_vs_rr.CONDITION` compares v3 with round-robin, `network_gain_bound.CONDITION` the oracle,
    which knows every path, with v2, and `network_gain_weights.CONDITION` the default of this project.
    `success.ARM.CONDITION` stands beside, for P95 is that of good answers."""
    p95: dict[tuple[str, str], float] = {}
    figures: Figures = {}
    for run in runs:
        found = latencies(run, warm_up_s)
        value = found[f"ttft_p95_ms.{run.arm}"]
        if value is not None:
            p95[run.condition, run.arm] = figures[f"ttft_p95_ms.{run.arm}.{run.condition}"] = value
        figures[f"success.{run.arm}.{run.condition}"] = found[f"success.{run.arm}"]
    for condition in dict.fromkeys(run.condition for run in runs):
        for name, arm, other in NETWORK_GAINS:
            ours, theirs = p95.get((condition, arm)), p95.get((condition, other))
            if ours is not None and theirs:
                figures[f"{name}.{condition}"] = 1 - ours / theirs
    return figures


# Saturation.


def meeting(figures: Figures, arms: Sequence[str]) -> Figures:
    """`ttft_p99_spread`: by how much, as a share, the P99 TTFT of the slowest arm is above that of the
    fastest: above saturation all arms should meet."""
    known = [value for arm in arms if (value := figures.get(f"ttft_p99_ms.{arm}"))]
    return {"ttft_p99_spread": max(known) / min(known) - 1 if len(known) > 1 else None}


# Whether the run itself can be trusted.


def lateness(runs: Sequence[ArmRun]) -> Figures:
    """`late_p99_ms.ARM`: how late the driver sent. Arms are alike only where the machine was as busy."""
    found: Figures = {}
    for run in runs:
        name = f"{run.arm}.{run.condition}" if run.condition else run.arm
        found[f"late_p99_ms.{name}"] = quantile([r.late_ms for r in run.records], 0.99)
    return found


def widest_gap_s(run: ArmRun, seconds: float, silent: Sequence[tuple[float, float]] = ()) -> float:
    """The longest time of the load without a view of the controller, in seconds; `silent` are spans in
    which the controller was away on purpose."""
    times = [0.0, *sorted(s.at - run.start for s in run.samples if 0 <= s.at - run.start <= seconds), seconds]
    return max(_awake(a, b, silent) for a, b in pairwise(times))


def _awake(start: float, end: float, silent: Sequence[tuple[float, float]]) -> float:
    away = sum(max(0.0, min(end, b) - max(start, a)) for a, b in silent)
    return end - start - away
