"""One piece of the matrix: a load and a seed, with all arms and tiers."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace_lab.scenarios import Catalogue, packaged
from headrace_lab.scenarios.settings import Counting
from headrace_lab.sim.fleets import BELOW_SATURATION, GUESS
from headrace_lab.sim.sustain import (
    Load,
    Outcome,
    Search,
    first_tokens,
    mean_prompt_s,
    measure,
    unloaded_p95,
)
from headrace_lab.sim.world import Setup
from headrace_shared import log

QUICK_SAMPLES = 300
QUICK_BISECTIONS = 7
MIDDLE = "middle"
TAIL_SAMPLES = 2500
"""Requests behind a P99: twenty-five of them are slower."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one process does at a time; `seed` is the repetition's, `slo_seed` fixes the unloaded runs,
    which are the same for all repetitions. `near` holds rates by (arm, tier) that another repetition found,
    to begin at, and `unloaded_s` what it found unloaded: neither changes what is found by more than the
    search's precision."""

    fleet: str
    load: str
    arms: tuple[str, ...]
    tiers: tuple[str, ...]
    repetition: int
    seed: int
    slo_seed: int
    quick: bool = False
    near: Mapping[tuple[str, str], float] = field(default_factory=dict)
    unloaded_s: float = math.nan


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


@dataclass(frozen=True, slots=True)
class Below:
    """All arms at one rate below round-robin's saturation: TTFTs in ms of the same requests in the same
    order, by arm; an infinite one is None."""

    load: str
    repetition: int
    rps: float
    ttft_ms: dict[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class Done:
    """A piece's results, and the CPU seconds that they took."""

    load: str
    repetition: int
    unloaded_s: float
    rows: tuple[Row, ...]
    below: Below | None
    cpu_s: float


def counting_of(catalogue: Catalogue, quick: bool) -> Counting:
    """How requests are counted: as the scenario file says, or with fewer samples and less precision."""
    if not quick:
        return catalogue.counting
    return catalogue.counting.model_copy(
        update={"least_samples": QUICK_SAMPLES, "bisections": QUICK_BISECTIONS}
    )


class Bench:
    """What all searches of a piece share."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.catalogue = packaged()
        self.counting = counting_of(self.catalogue, piece.quick)
        scenario = self.catalogue.scenario(piece.fleet)
        self.setup = Setup(
            fleet=self.catalogue.fleet(scenario.fleet),
            network=self.catalogue.network(scenario.network),
            gateway=self.catalogue.gateway,
            client=self.catalogue.client,
        )
        self.load: Load = self.catalogue.load(piece.load)
        rr = self.catalogue.arm("rr")
        self.unloaded_s = piece.unloaded_s
        if math.isnan(self.unloaded_s):
            self.unloaded_s = unloaded_p95(self.setup, rr, self.load, self.counting, piece.slo_seed)

    def search(self, name: str, guess: float) -> list[Row]:
        """All tiers of one arm, the loosest first: its runs serve the others."""
        piece, tiers, arm = self.piece, self.catalogue.tiers, self.catalogue.arm(name)

        def run(rps: float, slo_s: float) -> Outcome:
            return measure(self.setup, arm, self.load, self.counting, rps, piece.seed, slo_s)

        search, before, rows = Search(run, self.counting), 0, []
        for tier in sorted(piece.tiers, key=lambda tier: -tiers[tier]):
            slo_s, known = self.unloaded_s * tiers[tier], piece.near.get((name, tier), math.nan)
            near = not math.isnan(known)
            found = search.find(slo_s, known if near else guess, near)
            guess = guess if math.isnan(found.rps) else found.rps
            figures = (slo_s * 1e3, found.rps, found.failed_rps, len(found.runs) - before)
            rows.append(Row(piece.fleet, piece.load, name, tier, piece.repetition, piece.seed, *figures))
            before = len(found.runs)
        return rows

    def below(self, rps: float) -> Below:
        """All arms at a rate."""
        piece = self.piece
        counting = self.counting.model_copy(update={"least_samples": TAIL_SAMPLES})
        seen = {
            name: first_tokens(self.setup, self.catalogue.arm(name), self.load, counting, rps, piece.seed)
            for name in piece.arms
        }
        shared = sorted(set.intersection(*(set(each) for each in seen.values())))
        ttft_ms = {
            name: [round(each[i] * 1e3, 1) if math.isfinite(each[i]) else None for i in shared]
            for name, each in seen.items()
        }
        return Below(piece.load, piece.repetition, rps, ttft_ms)


def work(piece: Piece) -> Done:
    """Search all arms and tiers of a piece, then let all arms run below saturation."""
    log.configure(level="error")
    began = time.process_time()
    bench = Bench(piece)
    guess = GUESS / mean_prompt_s(bench.setup.fleet, bench.load)
    rows = [row for name in piece.arms for row in bench.search(name, guess)]
    rates = [row.sustainable_rps for row in rows if (row.arm, row.tier) == ("rr", MIDDLE)]
    known = [rate for rate in rates if math.isfinite(rate)]
    below = bench.below(BELOW_SATURATION * known[0]) if known and not piece.quick else None
    cpu_s = time.process_time() - began
    return Done(piece.load, piece.repetition, bench.unloaded_s, tuple(rows), below, cpu_s)
