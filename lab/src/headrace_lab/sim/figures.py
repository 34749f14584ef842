"""Figures that only a simulation has, or finds otherwise than a live run does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from headrace_lab.live.figures import Figures, reaction_figures
from headrace_lab.scenarios import CellPlan
from headrace_lab.sim.run import SimRun


def weight_ratio(run: SimRun, plans: Mapping[str, CellPlan], since_s: float, until_s: float) -> Figures:
    """`weight_ratio.ARM`: the mean weight over time of the kind of cell with most over that with least,
    where a kind is cells of one GPU, speed, link and limit."""
    held = dict.fromkeys(plans, 0.0)
    changes = [*run.plans, (until_s, {})]
    for (at, weights), (following, _) in pairwise(changes):
        lasted = max(0.0, min(following, until_s) - max(at, since_s))
        for cell, weight in weights.items():
            held[cell] += lasted * weight
    kinds: dict[tuple[object, ...], list[float]] = {}
    for cell, total in held.items():
        p = plans[cell]
        kinds.setdefault((p.gpu, p.speed, p.pcie_contention, p.max_model_len), []).append(total)
    means = [sum(totals) / len(totals) for totals in kinds.values()]
    ratio = max(means) / min(means) if means and min(means) > 0 else None
    return {f"weight_ratio.{run.arm}": ratio}


def prefix_hit_rate(run: SimRun) -> Figures:
    """`prefix_hit_rate.ARM`: of the prompt tokens that could have been in an engine's prefix cache, the share
    that was, over the whole run; nothing where the load names no prefixes."""
    stats = [cell.engine.stats(run.world.clock.now()) for cell in run.world.cells.values()]
    asked = sum(each.prefix_queries for each in stats)
    if not asked:
        return {}
    return {f"prefix_hit_rate.{run.arm}": sum(each.prefix_hits for each in stats) / asked}


def reactions(run: SimRun, starts_s: Sequence[float], within_s: float) -> Figures:
    """How soon weights move after bursts, by the plans that the gateway got."""
    return reaction_figures(run.arm, [at for at, _ in run.plans], starts_s, within_s)


def latency_ratios(found: Figures, arms: Sequence[str], condition: str = "") -> Figures:
    """`ratio_vs_oracle.ARM` of runs at one set rate: the oracle's P95 TTFT over the arm's, so that 1 is as
    good as the oracle and less is worse, as with rates; `condition` is a suffix. Empty without an oracle."""
    suffix = f".{condition}" if condition else ""
    base = found.get(f"ttft_p95_ms.oracle{suffix}")
    if base is None:
        return {}
    ratios: Figures = {}
    for arm in dict.fromkeys(arms):
        own = found.get(f"ttft_p95_ms.{arm}{suffix}")
        if arm != "oracle" and own:
            ratios[f"ratio_vs_oracle.{arm}{suffix}"] = base / own
    return ratios


def ratios(sustained: Mapping[str, float]) -> Figures:
    """`sustainable_rps.ARM`, and its ratios to round-robin and to the oracle where these ran."""
    found: Figures = {f"sustainable_rps.{arm}": rps for arm, rps in sustained.items()}
    for name in ("rr", "oracle"):
        base = sustained.get(name)
        if base:
            found |= {f"ratio_vs_{name}.{arm}": rps / base for arm, rps in sustained.items() if arm != name}
    return found
