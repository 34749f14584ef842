"""What no placement can pass: the rate at which prompts alone fill a whole fleet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headrace_lab.load.classes import generate
from headrace_lab.matrix.summary import Line
from headrace_lab.scenarios.fleets import FleetPlan
from headrace_lab.sim.sustain import Load, mean_prompt_s

PROMPTS = 4000
"""Of which the mean is taken: prompts of a trace differ by the hour."""
LOOKED_AT = 400


def prefill_rps(fleet: FleetPlan, load: Load) -> float:
    """Requests per second at which all cells do nothing but prefill, at their full speed and never idle.

    Answers, steps and luck are left out, so it is above what can be sustained. NaN where prompts share
    their beginnings: what a prefix cache saves depends on the placement.
    """
    some = generate(load, rps=1.0, seconds=LOOKED_AT, seed=1, most_tokens=fleet.max_model_len)
    if any(each.prefix for each in some):
        return math.nan
    return 1.0 / mean_prompt_s(fleet, load, prompts=PROMPTS)


def figures(bounds: Mapping[str, float], lines: Sequence[Line]) -> dict[str, float]:
    """`prefill_rps.LOAD`, and `ratio_bound_vs_rr.LOAD.TIER`: that over what round-robin sustains."""
    found = {f"prefill_rps.{load}": rps for load, rps in bounds.items()}
    for line in lines:
        if line.arm == "rr":
            rps = line.sustainable_rps.value
            found[f"ratio_bound_vs_rr.{line.load}.{line.tier}"] = bounds.get(line.load, math.nan) / rps
    return found
