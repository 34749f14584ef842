"""The load's clients: they send at set times, and may try a failed request again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace_lab.load.arrivals import Arrival
from headrace_lab.load.records import Record
from headrace_lab.scenarios.settings import ClientPlan
from headrace_lab.sim.gateway import MODEL
from headrace_lab.sim.jobs import Job
from headrace_lab.sim.world import World

AGAIN_IDS = 10_000_000
"""Each further try of a request has an id of its own: the request's plus so many."""


@dataclass(slots=True)
class _Asked:
    """A request and its tries so far."""

    first: Job
    last: Job
    tries: int = 1


@dataclass
class Clients:
    """All clients of one run. Without `again` each request is tried once. With it a try that fails, or
    has no first token after `attempt_timeout_s`, is followed by another after `retry_after_s`, as long as
    `timeout_s` since the first one have not passed."""

    world: World
    plan: ClientPlan
    again: bool = False
    _asked: dict[int, _Asked] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.again:
            self.world.gateway.on_end = self._ended
            self.world.gateway.on_arrive = self._watch

    def records(self) -> list[Record]:
        """What became of each request, in the order of sending."""
        jobs = self.world.gateway.jobs
        if not self.again:
            return [job.record(self.world.origin, MODEL) for job in jobs]
        found = []
        for job in jobs:
            asked = self._asked.get(job.arrival.id)
            if asked is not None and asked.first is job:
                found.append(self._whole(asked))
        return found

    def _whole(self, asked: _Asked) -> Record:
        """The record of the last try, its times counted from the first one's."""
        first = asked.first.record(self.world.origin, MODEL)
        if asked.tries == 1:
            return first
        last = asked.last.record(self.world.origin, MODEL)
        later_ms = (asked.last.sent_at - asked.first.sent_at) * 1e3
        return replace(
            last,
            id=first.id,
            sent_s=first.sent_s,
            ttft_ms=None if last.ttft_ms is None else last.ttft_ms + later_ms,
            e2e_ms=last.e2e_ms + later_ms,
            attempts=asked.tries,
            first_ok=first.first_ok,
            first_status=first.first_status,
            first_cell=first.first_cell,
            first_error=first.first_error,
            first_over_ms=first.first_over_ms,
        )

    def _watch(self, job: Job) -> None:
        """A try begins."""
        number = job.arrival.id % AGAIN_IDS
        asked = self._asked.get(number)
        if asked is None:
            self._asked[number] = _Asked(job, job)
        else:
            asked.last, asked.tries = job, asked.tries + 1
        self.world.calendar.enter(job.sent_at + self.plan.attempt_timeout_s, self._impatient, job)

    def _impatient(self, now: float, job: Job) -> None:
        if job.first_token_at < 0:
            self.world.gateway.give_up(now, job)

    def _ended(self, job: Job) -> None:
        asked = self._asked[job.arrival.id % AGAIN_IDS]
        again_at = job.ended_at + self.plan.retry_after_s
        over = again_at >= asked.first.sent_at + self.plan.timeout_s
        if job.ok or over or asked.tries >= self.plan.attempts:
            return
        again: Arrival = replace(job.arrival, id=job.arrival.id + AGAIN_IDS)
        self.world.calendar.enter(again_at, self.world.gateway.arrive, again)
