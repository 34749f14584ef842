"""The simulated gateway: sends each request to the cell that its chooser names, and hears the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from headrace_controller.gateway.records import Outcome
from headrace_controller.gateway.records import Record as Report
from headrace_controller.xds.names import cluster_name
from headrace_lab.load.arrivals import Arrival
from headrace_lab.sim.calendar import Calendar
from headrace_lab.sim.cells import BAD_REQUEST, OK, UNAVAILABLE, Condition, SimCell
from headrace_lab.sim.choosers import Chooser
from headrace_lab.sim.jobs import ENVELOPE_BYTES, Job
from headrace_lab.sim.paths import LONGEST_RESEND_S, RESEND_S, SitePath

SWEEP_S = 1.0
CLIENT = "192.0.2.1"
"""Where all the load seems to come from."""
CHECKS_RTT_S = 0.001


class Follower(Protocol):
    """Who hears what a gateway sees of each request, in the moment at which it sees it; a first token is
    told ahead, for its `first_token_at`."""

    def first_token(self, job: Job) -> None: ...

    def closed(self, now: float, job: Job, status: int) -> None: ...

    def left(self, now: float, job: Job) -> None: ...


class Gateway:
    """One gateway. `pick` gives the chooser for a request, which may differ by its size.

    `retries` are tries on another host after a refused or broken connection before any header;
    `timeout_s` is the clients' patience. A request whose answer has not begun after `hedge_after_s` goes to
    another host, 0 = never. `reports` gathers what the controller is to be told, None =
    nothing is. `on_arrive`, `on_first_token` and `on_end` hear
    of each job, and so does the `follower`: whoever places them.
    """

    def __init__(
        self,
        calendar: Calendar,
        paths: Mapping[str, SitePath],
        retries: int,
        timeout_s: float,
        bytes_per_token: float,
        hedge_after_s: float = 0.0,
    ) -> None:
        self._calendar = calendar
        self._paths = paths
        self._retries = retries
        self._hedge_after_s = hedge_after_s
        self._timeout_s = timeout_s
        self._bytes_per_token = bytes_per_token
        self.cells: Mapping[str, SimCell] = {}
        self.addresses: Mapping[str, str] = {}
        self.active: dict[str, int] = {}
        self.outstanding: dict[int, Job] = {}
        self.jobs: list[Job] = []
        self.reports: list[Report] | None = None
        self.pick: Callable[[Job], Chooser] = _nobody
        self.on_first_token: Callable[[Job], None] = _ignore
        self.on_end: Callable[[Job], None] = _ignore
        self.on_arrive: Callable[[Job], None] = _ignore
        self.follower: Follower | None = None

    def start(self, cells: Mapping[str, SimCell], addresses: Mapping[str, str]) -> None:
        """Know the cells and, for reports, their addresses as host:port; begin to watch the clients."""
        self.cells, self.addresses = cells, addresses
        self.active.update(dict.fromkeys(cells, 0))
        self._calendar.enter(self._calendar.clock.now() + SWEEP_S, self._sweep)

    # Requests go out.

    def arrive(self, now: float, arrival: Arrival) -> None:
        """A client sends a request."""
        size = int(arrival.prompt_tokens * self._bytes_per_token) + ENVELOPE_BYTES
        job = Job(arrival, now, size)
        self.jobs.append(job)
        self.outstanding[arrival.id] = job
        self.on_arrive(job)
        self._send(now, job)

    def _send(self, now: float, job: Job) -> None:
        cell = self.pick(job).choose(job, now)
        if cell is None:
            self._close(now, job, UNAVAILABLE, ok=False)
            return
        job.cell = cell
        job.attempt += 1
        job.last_sent_at = now
        job.tried.append(cell)
        self.active[cell] += 1
        self.cells[cell].coming_tokens += job.prompt_tokens
        self._carry(now, cell, self._arrived, (job, job.attempt, 0, False))
        if self._hedge_after_s and job.attempt <= self._retries and not self._begins(cell):
            self._calendar.enter(now + self._hedge_after_s, self._hedge, (job, job.attempt))

    def _begins(self, cell: str) -> bool:
        """Whether what a cell is sent now is answered at once: the headers go out before the first token."""
        path = self._paths[self.cells[cell].plan.site]
        return path.passes and self.cells[cell].condition is not Condition.HUNG

    def _hedge(self, now: float, told: tuple[Job, int]) -> None:
        """Ask another cell. Envoy leaves the first attempt as it is, and here it is given up: of a cell that
        hangs or is cut off no answer begins before another's does."""
        job, attempt = told
        if job.ended_at >= 0 or job.attempt != attempt or job.status == OK:
            return
        self.active[job.cell] -= 1
        self.cells[job.cell].leave(now, job)
        self._send(now, job)

    def _arrived(self, now: float, told: tuple[Job, int, int, bool]) -> None:
        job, attempt, _, _ = told
        if job.ended_at >= 0 or job.attempt != attempt:
            self.cells[job.tried[attempt - 1]].coming_tokens -= job.prompt_tokens
            return
        self.cells[job.cell].arrive(now, job)

    def _carry(
        self,
        now: float,
        cell: str,
        action: Callable[[float, tuple[Job, int, int, bool]], None],
        told: tuple[Job, int, int, bool],
        resend_s: float = RESEND_S,
    ) -> None:
        """Let a message cross the path to or from a cell, in the end."""
        path = self._paths[self.cells[cell].plan.site]
        if path.passes:
            self._calendar.enter(now + path.delay(now), action, told)
            return
        path.delay(now)  # which takes up changes of the plan

        def again(at: float, _: object) -> None:
            self._carry(at, cell, action, told, min(2 * resend_s, LONGEST_RESEND_S))

        self._calendar.enter(now + resend_s, again)

    # Answers come back. Implements headrace_lab.sim.cells.Client.

    def first_token(self, now: float, job: Job) -> None:
        """A cell has a request's first token."""
        path = self._paths[self.cells[job.cell].plan.site]
        if path.passes:
            # No event: what the gateway does next does not depend on it.
            job.first_token_at = now + path.delay(now)
            self._has_token(job)
        else:
            self._carry(now, job.cell, self._late_token, (job, job.attempt, 0, False))

    def _late_token(self, now: float, told: tuple[Job, int, int, bool]) -> None:
        job, attempt, _, _ = told
        if job.ended_at < 0 and job.attempt == attempt:
            job.first_token_at = now
            self._has_token(job)

    def _has_token(self, job: Job) -> None:
        self.on_first_token(job)
        if self.follower is not None:
            self.follower.first_token(job)

    def ended(self, now: float, job: Job, status: int, broken: bool) -> None:
        """A cell is done with a request."""
        self._carry(now, job.cell, self._ended, (job, job.attempt, status, broken))

    def _ended(self, now: float, told: tuple[Job, int, int, bool]) -> None:
        job, attempt, status, broken = told
        if job.ended_at >= 0 or job.attempt != attempt:
            return
        self.active[job.cell] -= 1
        self._report(job, status, broken, now)
        if broken and status != OK and job.attempt <= self._retries:
            self._send(now, job)
            return
        self._close(now, job, status, ok=status == OK and not broken)

    def _close(self, now: float, job: Job, status: int, ok: bool) -> None:
        job.status, job.ok, job.ended_at = status, ok, now
        self.outstanding.pop(job.arrival.id, None)
        self.on_end(job)
        if self.follower is not None:
            self.follower.closed(now, job, status)

    def give_up(self, now: float, job: Job) -> None:
        """The client of a request leaves."""
        if job.ended_at >= 0:
            return
        if job.cell:
            self.active[job.cell] -= 1
            self.cells[job.cell].leave(now, job)
        if self.follower is not None:
            self.follower.left(now, job)
        self._close(now, job, job.status, ok=False)

    def _sweep(self, now: float, _: object) -> None:
        old = []
        for job in self.outstanding.values():
            if now - job.sent_at < self._timeout_s:
                break
            old.append(job)
        for job in old:
            self.give_up(now, job)
        self._calendar.enter(now + SWEEP_S, self._sweep)

    def _report(self, job: Job, status: int, broken: bool, now: float) -> None:
        if self.reports is None:
            return
        outcome = Outcome.OK
        if broken or status >= UNAVAILABLE:
            outcome = Outcome.SERVER_ERROR
        elif status >= BAD_REQUEST:
            outcome = Outcome.CLIENT_ERROR
        self.reports.append(
            Report(
                outcome=outcome,
                upstream=self.addresses[job.cell],
                cluster=cluster_name(MODEL),
                status=status,
                client=CLIENT,
                request_bytes=job.body_bytes,
                last_byte_s=now - job.sent_at,
                streamed=True,
                broken=broken,
                refused=broken and not status,
            )
        )


MODEL = "lab"


def _nobody(job: Job) -> Chooser:
    raise RuntimeError("no arm is in force")


def _ignore(job: Job) -> None:
    return
