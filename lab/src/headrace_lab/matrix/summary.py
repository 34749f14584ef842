"""What the matrix says: medians, ratios to round-robin and the oracle, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace_lab.matrix.work import Row

PLAIN = ("rr", "lr")


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and its bootstrap interval; NaN = not known."""

    value: float
    low: float
    high: float

    def apart(self, other: Interval) -> bool:
        """Whether the two intervals do not overlap."""
        return self.low > other.high or other.low > self.high


@dataclass(frozen=True, slots=True)
class Line:
    """One load, arm and tier over its repetitions. `vs_rr`, `vs_weights`, `vs_oracle` and `vs_plain` (the
    better of rr and lr) are means of the ratios of the same seeds; `apart_from_rr`: the intervals of the
    two sustainable rates do not overlap."""

    fleet: str
    load: str
    arm: str
    tier: str
    slo_ms: float
    sustainable_rps: Interval
    vs_rr: Interval
    vs_weights: Interval
    vs_oracle: Interval
    vs_plain: Interval
    apart_from_rr: bool


def bootstrap(
    values: Sequence[float], resamples: int, confidence: float, seed: int = 1, median: bool = False
) -> Interval:
    """The mean, or median, of the values and its percentile interval over resamples of them; one value
    alone has no interval."""
    known = np.array([value for value in values if math.isfinite(value)])
    if not len(known):
        return Interval(math.nan, math.nan, math.nan)
    if len(known) == 1:
        return Interval(float(known[0]), math.nan, math.nan)
    centre = np.median if median else np.mean
    drawn = np.random.default_rng(seed).choice(known, (resamples, len(known)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(centre(drawn, axis=1), [tail, 1 - tail])
    return Interval(float(centre(known)), float(low), float(high))


def summarise(rows: Sequence[Row], resamples: int, confidence: float) -> list[Line]:
    """A line for each load, arm and tier, in the order of the rows."""
    at = {(r.load, r.arm, r.tier, r.repetition): r.sustainable_rps for r in rows}
    repetitions = sorted({r.repetition for r in rows})
    rates = {
        key: bootstrap(
            [at.get((*key, rep), math.nan) for rep in repetitions], resamples, confidence, median=True
        )
        for key in dict.fromkeys((r.load, r.arm, r.tier) for r in rows)
    }
    slo = {(r.load, r.tier): r.slo_ms for r in rows}
    fleet = rows[0].fleet if rows else ""

    def against(load: str, arm: str, tier: str, *bases: str) -> Interval:
        ratios = []
        for rep in repetitions:
            base = [at.get((load, each, tier, rep), math.nan) for each in bases]
            ratios.append(at.get((load, arm, tier, rep), math.nan) / float(np.max(base)))
        return bootstrap(ratios, resamples, confidence)

    return [
        Line(
            fleet,
            load,
            arm,
            tier,
            slo[load, tier],
            rate,
            against(load, arm, tier, "rr"),
            against(load, arm, tier, "weights"),
            against(load, arm, tier, "oracle"),
            against(load, arm, tier, *PLAIN),
            (load, "rr", tier) in rates and rate.apart(rates[load, "rr", tier]),
        )
        for (load, arm, tier), rate in rates.items()
    ]


def figures(lines: Sequence[Line], margin: float) -> dict[str, float]:
    """`sustainable_rps.LOAD.TIER.ARM`, `ratio_vs_rr.LOAD.TIER.ARM` and so on, and for each tier and arm
    the least, the median and the number of loads whose intervals are apart from round-robin's.
    `not_inferior_rps.TIER.ARM` counts the loads in which the lower end of `ratio_vs_plain` is within
    `margin` of 1."""
    found: dict[str, float] = {}
    for line in lines:
        name = f"{line.load}.{line.tier}.{line.arm}"
        found[f"sustainable_rps.{name}"] = line.sustainable_rps.value
        found[f"ratio_vs_rr.{name}"] = line.vs_rr.value
        found[f"ratio_vs_weights.{name}"] = line.vs_weights.value
        found[f"ratio_vs_oracle.{name}"] = line.vs_oracle.value
        found[f"ratio_vs_plain.{name}"] = line.vs_plain.value
    for tier, arm in dict.fromkeys((line.tier, line.arm) for line in lines):
        some = [line for line in lines if (line.tier, line.arm) == (tier, arm)]
        ratios = {
            "rr": [line.vs_rr.value for line in some],
            "weights": [line.vs_weights.value for line in some],
            "oracle": [line.vs_oracle.value for line in some],
            "plain": [line.vs_plain.value for line in some],
        }
        for base, values in ratios.items():
            known = [ratio for ratio in values if math.isfinite(ratio)]
            if known:
                found[f"ratio_vs_{base}_min.{tier}.{arm}"] = min(known)
                found[f"ratio_vs_{base}_median.{tier}.{arm}"] = float(np.median(known))
        found[f"loads_apart_from_rr.{tier}.{arm}"] = float(sum(line.apart_from_rr for line in some))
        found[f"not_inferior_rps.{tier}.{arm}"] = float(sum(line.vs_plain.low >= 1 - margin for line in some))
        found[f"loads.{tier}.{arm}"] = float(len(some))
    return found
