"""One piece of the matrix: a load and a seed, with all arms and tiers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace_lab.scenarios import Catalogue, packaged
from headrace_lab.scenarios.settings import Counting
from headrace_lab.sim.fleets import GUESS
from headrace_lab.sim.sustain import Outcome, Search, mean_prompt_s, measure, unloaded_p95
from headrace_lab.sim.world import Setup
from headrace_shared import log

QUICK_SAMPLES = 300
QUICK_BISECTIONS = 7


@dataclass(frozen=True, slots=True)
class Piece:
    """What one process does at a time; `seed` is the repetition's, `slo_seed` fixes the unloaded runs,
    which are the same for all repetitions."""

    fleet: str
    load: str
    arms: tuple[str, ...]
    tiers: tuple[str, ...]
    repetition: int
    seed: int
    slo_seed: int
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of the matrix: the highest rate that held, and the lowest that did not; NaN = none.
    `runs` were made for it, those shared with other tiers left out."""

    fleet: str
    load: str
    arm: str
    tier: str
    repetition: int
    seed: int
    slo_ms: float
    sustainable_rps: float
    failed_rps: float
    runs: int


def counting_of(catalogue: Catalogue, quick: bool) -> Counting:
    """How requests are counted: as the scenario file says, or with fewer samples and less precision."""
    if not quick:
        return catalogue.counting
    return catalogue.counting.model_copy(
        update={"least_samples": QUICK_SAMPLES, "bisections": QUICK_BISECTIONS}
    )


def work(piece: Piece) -> list[Row]:
    """Search all arms and tiers of a piece, the loosest tier first: its runs serve the others."""
    log.configure(level="error")
    catalogue = packaged()
    counting = counting_of(catalogue, piece.quick)
    scenario = catalogue.scenario(piece.fleet)
    setup = Setup(
        fleet=catalogue.fleet(scenario.fleet),
        network=catalogue.network(scenario.network),
        gateway=catalogue.gateway,
        client=catalogue.client,
    )
    load = catalogue.load(piece.load)
    unloaded_s = unloaded_p95(setup, catalogue.arm("rr"), load, counting, piece.slo_seed)
    guess = GUESS / mean_prompt_s(setup.fleet, load)
    rows = []
    for name in piece.arms:
        arm = catalogue.arm(name)

        def run(rps: float, slo_s: float) -> Outcome:
            return measure(setup, arm, load, counting, rps, piece.seed, slo_s)  # noqa: B023

        search, before, near = Search(run, counting), 0, guess
        for tier in sorted(piece.tiers, key=lambda tier: -catalogue.tiers[tier]):
            slo_s = unloaded_s * catalogue.tiers[tier]
            found = search.find(slo_s, near)
            near = near if math.isnan(found.rps) else found.rps
            rows.append(
                Row(
                    piece.fleet,
                    piece.load,
                    name,
                    tier,
                    piece.repetition,
                    piece.seed,
                    slo_s * 1e3,
                    found.rps,
                    found.failed_rps,
                    len(found.runs) - before,
                )
            )
            before = len(found.runs)
    return rows
