"""Sustainable RPS: the highest rate at which P95 TTFT keeps the SLO and enough requests succeed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headrace_lab.engine.profiles import profile
from headrace_lab.load.arrivals import Arrival
from headrace_lab.load.classes import generate
from headrace_lab.scenarios.fleets import FleetPlan
from headrace_lab.scenarios.loads import LoadClass, TraceLoad
from headrace_lab.scenarios.settings import Arm, Counting
from headrace_lab.sim.jobs import Job
from headrace_lab.sim.world import Setup, World

Load = LoadClass | TraceLoad
PRECISION = 0.015
"""Relative width of the bracket at which a search ends."""
WIDEN = 1.3
WIDEN_NEAR = 1.04
"""The first step away from a guess that is near; each further one is twice as far, up to WIDEN."""
LEAST_RPS = 0.01
DRAIN_S = 60.0
LOOK_S = 2.0
UNLOADED_SHARE = 0.05
"""Of its prefill rate, the most that an unloaded cell is asked for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run at one rate. `p95_s` is exact where `exact`, else what it is at least: the run ended
    early, as soon as the SLO could not be kept any more."""

    rps: float
    p95_s: float
    success: float
    samples: int
    exact: bool = True

    def keeps(self, slo_s: float, success: float) -> bool:
        """Whether the rate is sustained."""
        return self.exact and self.p95_s <= slo_s and self.success >= success


@dataclass(frozen=True, slots=True)
class Found:
    """A search's result: the highest rate that held and the lowest that did not; NaN where none did."""

    rps: float
    failed_rps: float
    runs: tuple[Outcome, ...]


class Counter:
    """Counts the requests of the window of one run, and stops it once the SLO is out of reach."""

    def __init__(self, world: World, counting: Counting, counted_s: float, slo_s: float, total: int) -> None:
        self._world, self._slo_s = world, slo_s
        self.begin = world.origin + counting.warm_up_s
        self.end = self.begin + counted_s
        # With so many too slow the quantile is beyond the SLO whatever the others do.
        self._most = math.floor((1 - counting.quantile) * (total - 1)) + 1
        self.slow = 0
        self.stopped = False

    def counts(self, job: Job) -> bool:
        """Whether a request was sent in the window."""
        return self.begin <= job.sent_at < self.end

    def first_token(self, job: Job) -> None:
        """Take in a first token."""
        if self.counts(job) and job.first_token_at - job.sent_at > self._slo_s:
            self.slow += 1
            self._judge(self.slow)

    def look(self, now: float, _: object = None) -> None:
        """Count those that have waited for too long already."""
        waiting = 0
        for job in self._world.gateway.outstanding.values():
            if now - job.sent_at <= self._slo_s:
                break
            waiting += job.first_token_at < 0 and self.counts(job)
        self._judge(self.slow + waiting)
        self._world.calendar.enter(now + LOOK_S, self.look)

    def _judge(self, slow: int) -> None:
        if slow > self._most and not self.stopped:
            self.stopped = True
            self._world.calendar.stop()


def counted_seconds(counting: Counting, rps: float) -> float:
    """Length of the window that holds enough samples."""
    return max(counting.counted_s, counting.least_samples / rps)


def measure(
    setup: Setup, arm: Arm, load: Load, counting: Counting, rps: float, seed: int, slo_s: float = math.inf
) -> Outcome:
    """One run at one rate; it ends early where `slo_s` is out of reach."""
    counted, stopped = _counted(setup, arm, load, counting, rps, seed, slo_s)
    if stopped:
        return Outcome(rps, slo_s, 1.0, len(counted), exact=False)
    ttfts = [job.ttft_s if job.ttft_s is not None else math.inf for job in counted]
    p95 = float(np.quantile(ttfts, counting.quantile, method="higher")) if ttfts else math.nan
    success = sum(job.ok for job in counted) / len(counted) if counted else math.nan
    return Outcome(rps, p95, success, len(counted))


def first_tokens(
    setup: Setup, arm: Arm, load: Load, counting: Counting, rps: float, seed: int
) -> dict[int, float]:
    """TTFT in seconds of each counted request of one run, by its number in the load, which is the same
    for all arms; inf where no token came."""
    counted, _ = _counted(setup, arm, load, counting, rps, seed, math.inf)
    return {job.arrival.id: job.ttft_s if job.ttft_s is not None else math.inf for job in counted}


def _counted(
    setup: Setup, arm: Arm, load: Load, counting: Counting, rps: float, seed: int, slo_s: float
) -> tuple[list[Job], bool]:
    """The requests of a run's window, and whether it ended early."""
    counted_s = counted_seconds(counting, rps)
    sent_s = counting.warm_up_s + counted_s + counting.cool_down_s
    arrivals = _arrivals(load, rps, sent_s, seed, setup.fleet)
    world = World(setup, arm, seed)
    begin, end = counting.warm_up_s, counting.warm_up_s + counted_s
    total = sum(begin <= each.at_s < end for each in arrivals)
    counter = Counter(world, counting, counted_s, slo_s, total)
    world.gateway.on_first_token = counter.first_token
    if math.isfinite(slo_s):
        counter.look(world.origin)
    jobs = world.run(arrivals, sent_s)
    if not counter.stopped and any(counter.counts(job) for job in world.gateway.outstanding.values()):
        world.run([], sent_s + DRAIN_S)
    return [job for job in jobs if counter.counts(job)], counter.stopped


_kept: dict[tuple[str, float, float, int, int], list[Arrival]] = {}
_KEPT = 8


def _arrivals(load: Load, rps: float, seconds: float, seed: int, fleet: FleetPlan) -> list[Arrival]:
    """The requests; those of the last few rates are kept, for the other arms."""
    key = (load.model_dump_json(), rps, seconds, seed, fleet.max_model_len)
    if key not in _kept:
        while len(_kept) >= _KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = generate(load, rps=rps, seconds=seconds, seed=seed, most_tokens=fleet.max_model_len)
    return _kept[key]


def mean_prompt_s(fleet: FleetPlan, load: Load, slowest: bool = False, prompts: int = 400) -> float:
    """Seconds of prefill that a request takes on average of so many, on the whole fleet at once or on its
    slowest cell alone. Prefix caches are left out."""
    lengths = [
        each.prompt_tokens
        for each in generate(load, rps=1.0, seconds=prompts, seed=1, most_tokens=fleet.max_model_len)
    ]
    rates = []
    for plan in fleet.plans:
        engine = profile(plan.gpu, plan.model, max_model_len=plan.max_model_len, speed=plan.speed).engine
        work = [n / engine.prefill_tokens_per_s + n * n / 2 * engine.attention_per_pair_s for n in lengths]
        rates.append(plan.speed / (sum(work) / len(work)))
    return 1.0 / (min(rates) if slowest else sum(rates))


def unloaded_rps(fleet: FleetPlan, load: Load, counting: Counting) -> float:
    """The rate at which the fleet counts as unloaded: the scenario file's for each cell, and less where
    prompts are so long that even that is a load."""
    most = UNLOADED_SHARE / mean_prompt_s(fleet, load, slowest=True)
    return len(fleet.plans) * min(counting.unloaded_rps, most)


def unloaded_p95(setup: Setup, arm: Arm, load: Load, counting: Counting, seed: int) -> float:
    """P95 TTFT in seconds of the load on the unloaded fleet; a load's spikes are a part of it."""
    rps = unloaded_rps(setup.fleet, load, counting)
    few = counting.model_copy(
        update={"counted_s": counting.unloaded_samples / rps, "least_samples": 1, "cool_down_s": 0.0}
    )
    return measure(setup, arm, load, few, rps, seed).p95_s


class Search:
    """Finds the sustainable RPS of one arm and seed; runs are shared between SLOs.

    `run(rps, slo_s)` makes one run; `note` hears of each.
    """

    def __init__(
        self,
        run: Callable[[float, float], Outcome],
        counting: Counting,
        note: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        self._run = run
        self._counting = counting
        self._note = note
        self._seen: dict[float, Outcome] = {}

    def find(self, slo_s: float, guess_rps: float, near: bool = False) -> Found:
        """The highest rate that keeps `slo_s`, looked for around a guess; `near` = little off, as what was
        found with another seed."""
        low, high = math.nan, math.nan
        budget = self._counting.bisections
        widen = WIDEN_NEAR if near else WIDEN
        for outcome in self._seen.values():
            if outcome.exact or slo_s <= outcome.p95_s:
                low, high = self._narrow(low, high, outcome, slo_s)
        while budget > 0 and not high / low <= 1 + PRECISION:
            rps = _next(low, high, guess_rps, widen)
            widen = min(WIDEN, widen * widen) if rps != guess_rps else widen
            if rps < LEAST_RPS:
                break
            budget -= 1
            low, high = self._narrow(low, high, self._at(rps, slo_s), slo_s)
        return Found(low, high, tuple(self._seen.values()))

    def _at(self, rps: float, slo_s: float) -> Outcome:
        outcome = self._run(rps, slo_s)
        self._seen[rps] = outcome
        self._note(outcome)
        return outcome

    def _narrow(self, low: float, high: float, outcome: Outcome, slo_s: float) -> tuple[float, float]:
        if outcome.keeps(slo_s, self._counting.success):
            return (outcome.rps if math.isnan(low) else max(low, outcome.rps)), high
        return low, (outcome.rps if math.isnan(high) else min(high, outcome.rps))


def _next(low: float, high: float, guess: float, widen: float) -> float:
    """The next rate to try between the highest that held and the lowest that did not, NaN = none yet: the
    guess, then away from it by `widen`, or the middle where that is nearer."""
    low, high = (0.0 if math.isnan(low) else low), (math.inf if math.isnan(high) else high)
    if low < guess < high:
        return guess
    middle = math.sqrt(low * high) if low and math.isfinite(high) else math.nan
    if low >= guess:
        return low * widen if math.isnan(middle) else min(low * widen, middle)
    return high / widen if math.isnan(middle) else max(high / widen, middle)
