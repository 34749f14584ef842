"""Live against simulated first tokens: differences, what luck alone makes, and what else was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace_lab.live.figures import Figures, quantile
from headrace_lab.load.records import Record

AGREE = 0.15
QUANTILES = {"p50": 0.50, "p95": 0.95}
LATE_SHARE = 0.02
"""Of a live quantile: lateness of the driver beyond it is worth a word."""


@dataclass(frozen=True, slots=True)
class Side:
    """One quantile both ways, in ms. `sim` is the median over simulations that differ in luck alone
    (engines' noise, who is first in turn), `sim_low` and `sim_high` the least and the most of them;
    None = no good answer."""

    live: float | None
    sim: float | None
    sim_low: float | None
    sim_high: float | None

    @property
    def difference(self) -> float | None:
        """Of live from sim, as a share of sim."""
        if self.live is None or not self.sim:
            return None
        return self.live / self.sim - 1

    @property
    def agrees(self) -> bool:
        """Whether the two are within AGREE."""
        return self.difference is not None and abs(self.difference) <= AGREE

    @property
    def by_luck(self) -> bool:
        """Whether a simulation with other luck gave as much."""
        known = self.live is not None and self.sim_low is not None and self.sim_high is not None
        return bool(known and self.sim_low <= self.live <= self.sim_high)  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Host:
    """What the live run says of the machine: how late the driver sent (P99, ms), the load average over
    the cores, and by how much a request's first token came later than in sim (median, ms)."""

    late_p99_ms: float | None
    load_per_core: float
    excess_p50_ms: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One scenario and arm, both ways."""

    scenario: str
    arm: str
    rps: float
    requests: int
    sides: dict[str, Side]
    host: Host

    @property
    def agrees(self) -> bool:
        """Whether P50 and P95 both agree."""
        return all(side.agrees for side in self.sides.values())

    def reasons(self) -> list[str]:
        """Why they may differ, from what was measured; empty where they agree."""
        return [] if self.agrees else [*_reasons(self)]


def good(records: Sequence[Record], warm_up_s: float) -> dict[int, Record]:
    """Whole answers to requests due after the warm-up, by their numbers."""
    return {r.id: r for r in records if r.ok and r.ttft_ms is not None and r.due_s >= warm_up_s}


def compare(
    scenario: str,
    arm: str,
    rps: float,
    live: Sequence[Record],
    sims: Sequence[Sequence[Record]],
    warm_up_s: float,
    load_per_core: float,
) -> Comparison:
    """One scenario and arm; `sims` are simulations of the same load with different luck."""
    seen = good(live, warm_up_s)
    simulated = [good(each, warm_up_s) for each in sims]
    sides = {}
    for name, q in QUANTILES.items():
        values = [v for each in simulated if (v := _ttft(each, q)) is not None]
        middle = float(np.median(values)) if values else None
        sides[name] = Side(_ttft(seen, q), middle, min(values, default=None), max(values, default=None))
    excess = [
        float(seen[i].ttft_ms or 0) - float(simulated[0][i].ttft_ms or 0)
        for i in seen
        if simulated and i in simulated[0]
    ]
    late = quantile([max(0.0, r.late_ms) for r in live], 0.99)
    host = Host(late, load_per_core, quantile(excess, 0.5))
    return Comparison(scenario, arm, rps, len(live), sides, host)


def _ttft(records: dict[int, Record], q: float) -> float | None:
    return quantile([float(r.ttft_ms) for r in records.values() if r.ttft_ms is not None], q)


def _reasons(found: Comparison) -> list[str]:
    said, host = [], found.host
    off = {name: side for name, side in found.sides.items() if not side.agrees}
    for name, side in off.items():
        if side.by_luck:
            said.append(
                f"{name.upper()}: simulations with other luck gave {side.sim_low:.0f} to "
                f"{side.sim_high:.0f} ms, which the live run is within"
            )
    least = min((side.live for side in off.values() if side.live is not None), default=0.0)
    if host.late_p99_ms is not None and host.late_p99_ms > LATE_SHARE * least:
        said.append(f"the driver sent up to {host.late_p99_ms:.0f} ms late (P99): the machine was busy")
    if host.load_per_core > 1:
        said.append(f"load average {host.load_per_core:.1f} a core: programs waited for the CPU")
    if host.excess_p50_ms is not None and abs(host.excess_p50_ms) > LATE_SHARE * least:
        said.append(f"a first token came {host.excess_p50_ms:+.0f} ms from its simulated time (median)")
    if any(side.live is None or side.sim is None for side in off.values()):
        said.append("one side has no whole answer to count")
    return said or ["nothing that was measured explains it: the models differ"]


def figures(found: Sequence[Comparison]) -> Figures:
    """`ttft_pNN_difference.SCENARIO.ARM` (live from sim, as a share), the greatest of them, and how many
    comparisons agree."""
    named: Figures = {}
    for each in found:
        for name, side in each.sides.items():
            named[f"ttft_{name}_difference.{each.scenario}.{each.arm}"] = side.difference
    known = [abs(value) for value in named.values() if value is not None]
    named["difference_max"] = max(known, default=None)
    named["agree"] = float(sum(each.agrees for each in found))
    named["comparisons"] = float(len(found))
    return named
