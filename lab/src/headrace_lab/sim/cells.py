"""A simulated cell: engine and GPU, driven from change to change."""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import replace
from enum import Enum
from itertools import accumulate
from typing import Protocol

from headrace_lab.cell.buckets import TTFT
from headrace_lab.engine import ContextLengthError, Engine, EngineStats, Output, Request, Step
from headrace_lab.engine.profiles import Profile
from headrace_lab.gpu.model import Gpu, GpuFigures, GpuLoad, GpuStress
from headrace_lab.scenarios.fleets import CellPlan
from headrace_lab.sim.calendar import Calendar
from headrace_lab.sim.jobs import Job

SLOWDOWN_GRAIN = 0.002
"""Changes of an engine's speed below this are not worth an event."""
BAD_REQUEST = 400
UNAVAILABLE = 503
OK = 200


class Condition(Enum):
    """What an engine does with a request: answers it, refuses the connection, keeps it for ever, or
    says that it is still loading."""

    SERVING = "serving"
    DOWN = "down"
    HUNG = "hung"
    LOADING = "loading"


class Client(Protocol):
    """Who hears of a cell's answers; the moments are those at which they leave the cell."""

    def first_token(self, now: float, job: Job) -> None: ...

    def ended(self, now: float, job: Job, status: int, broken: bool) -> None: ...


class SimCell:
    """One cell. `client` hears what becomes of its requests."""

    def __init__(
        self, plan: CellPlan, profile: Profile, calendar: Calendar, client: Client, seed: int
    ) -> None:
        self.plan = plan
        self.profile = profile
        self.condition = Condition.SERVING
        self.gpu = Gpu(profile.gpu, calendar.clock.now())
        self.totals = {"ok": 0, "client_errors": 0, "throttled": 0, "server_errors": 0}
        self.ttft_counts = [0] * (len(TTFT) + 1)
        self.coming_tokens = 0
        """Prompt tokens of requests that are on their way here."""
        self._calendar = calendar
        self._client = client
        self._seed = seed
        self._starts = 0
        self._random = random.Random(f"{seed}/{plan.id}/refusals")
        self.engine = self._new_engine()
        self._step: Step | None = None
        self._due = 0.0
        self._jobs: dict[str, Job] = {}
        self.suffer(calendar.clock.now(), GpuStress())

    @property
    def ttft_cumulative(self) -> tuple[float, ...]:
        """TTFTs by upper bound of vLLM's buckets, cumulative, the last one being +Inf."""
        return tuple(map(float, accumulate(self.ttft_counts)))

    def _new_engine(self) -> Engine:
        self._starts += 1
        number = self._seed * 1009 + self.plan.number * 31 + self._starts
        return Engine(self.profile.engine, number)

    # Requests.

    def arrive(self, now: float, job: Job) -> None:
        """A request is here."""
        self.coming_tokens -= job.prompt_tokens
        match self.condition:
            case Condition.SERVING:
                self._take(now, job)
            case Condition.DOWN:
                self._client.ended(now, job, 0, broken=True)
            case Condition.LOADING:
                self.totals["server_errors"] += 1
                self._client.ended(now, job, UNAVAILABLE, broken=False)
            case Condition.HUNG:
                self._jobs[f"{job.arrival.id}.{job.attempt}"] = job

    def _take(self, now: float, job: Job) -> None:
        arrival = job.arrival
        if self.plan.refuse_share and self._random.random() < self.plan.refuse_share:
            self._refuse(now, job)
            return
        name = f"{arrival.id}.{job.attempt}"
        request = Request(name, arrival.prompt_tokens, arrival.max_tokens, prefix=arrival.prefix)
        if not self.engine.has_queue:
            self.engine.cut(now)
        try:
            self.engine.submit(request, now)
        except ContextLengthError:
            self._refuse(now, job)
        else:
            self._jobs[name] = job
            job.status = OK  # a stream's headers go out before its first token
        self._go_on(now)

    def _refuse(self, now: float, job: Job) -> None:
        self.totals["client_errors"] += 1
        self._client.ended(now, job, BAD_REQUEST, broken=False)

    def leave(self, now: float, job: Job) -> None:
        """The client has gone."""
        name = f"{job.arrival.id}.{job.attempt}"
        if self._jobs.pop(name, None) is not None and self.condition is Condition.SERVING:
            self.engine.abort(name, now)
            self._go_on(now)

    # The engine's steps.

    def _go_on(self, now: float) -> None:
        """Begin a run where none is under way, and note when the one under way ends."""
        if self._step is None:
            self._step = self.engine.begin_run(now)
        if self._step is not None:
            due = self._step.started_at + self._step.duration_s
            if due != self._due:
                self._due = due
                self._calendar.enter(due, self._finish, self._step)

    def _finish(self, now: float, step: Step) -> None:
        # A run that was cut, or whose engine has died, has its end entered for nothing.
        if step is not self._step or now < self._due:
            return
        self._step = None
        for output in self.engine.finish_run(step, now):
            self._hand_out(now, output)
        self._go_on(now)

    def _hand_out(self, now: float, output: Output) -> None:
        job = self._jobs[output.request_id]
        if output.number == 1:
            self.ttft_counts[bisect_left(TTFT, output.latency_s)] += 1
            self._client.first_token(now, job)
        if output.finish is not None:
            del self._jobs[output.request_id]
            self.totals["ok"] += 1
            self._client.ended(now, job, OK, broken=False)

    # The GPU.

    def suffer(self, now: float, stress: GpuStress) -> None:
        """Put a stress on the GPU, beside the contention that the cell always has."""
        own = self.plan.pcie_contention
        taken = 1 - (1 - own) * (1 - stress.pcie_contention)
        self.gpu.suffer(replace(stress, pcie_contention=taken), now)
        self.slow(now)

    def look(self, now: float, stats: EngineStats) -> GpuFigures:
        """Let the GPU follow the engine, whose figures are `stats`, and the engine the GPU; the GPU's
        figures."""
        if self.condition is Condition.DOWN:
            self.gpu.follow(GpuLoad(), now)
        else:
            self.gpu.follow(GpuLoad(stats.busy, stats.tensor, stats.bandwidth, stats.kv_fill, True), now)
        self.slow(now)
        return self.gpu.figures(now)

    def slow(self, now: float) -> None:
        """Let the engine have the speed that its GPU allows."""
        factor = self.gpu.slowdown(now, self.profile.pcie_share)
        if abs(factor - self.engine.slowdown) > SLOWDOWN_GRAIN * self.engine.slowdown:
            self.engine.cut(now)
            self.engine.slowdown = factor
            self._go_on(now)

    # Faults.

    def die(self, now: float) -> None:
        """The engine's process ends as by SIGKILL: all connections break."""
        self._fall(now, Condition.DOWN)

    def hang(self, now: float) -> None:
        """The engine keeps its connections and answers nothing any more."""
        self._step, self._due = None, 0.0
        self.condition = Condition.HUNG

    def load(self, now: float) -> None:
        """A new engine process starts: it answers, and is not ready yet."""
        self._fall(now, Condition.LOADING)

    def serve(self, now: float) -> None:
        """The new process serves, with empty caches and counters of its own."""
        self._fall(now, Condition.SERVING)
        self.totals = dict.fromkeys(self.totals, 0)
        self.ttft_counts = [0] * len(self.ttft_counts)

    def _fall(self, now: float, condition: Condition) -> None:
        self.condition = condition
        self._step, self._due = None, 0.0
        slowdown = self.engine.slowdown
        self.engine = self._new_engine()
        self.engine.slowdown = slowdown
        jobs, self._jobs = list(self._jobs.values()), {}
        for job in jobs:
            self._client.ended(now, job, OK if job.status == OK else 0, broken=True)
