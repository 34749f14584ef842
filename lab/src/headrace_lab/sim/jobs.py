"""One request on its way through the simulated gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace_lab.load.arrivals import Arrival
from headrace_lab.load.records import Record

ENVELOPE_BYTES = 200
"""JSON around the prompt's text."""
FAILED = 0


@dataclass(slots=True, eq=False)
class Job:
    """A request; times on the virtual clock, -1 = not reached.

    `sent_at` is when the gateway got it, `last_sent_at` when it last sent it to a cell, `cell` who has it
    now or had it last, `status` what came back, 0 = nothing. `attempt` counts from 1 and tells an answer to
    an earlier try from one to this. `named` are the cells that a picker has for its retries.
    """

    arrival: Arrival
    sent_at: float
    body_bytes: int
    last_sent_at: float = -1.0
    cell: str = ""
    attempt: int = 0
    tried: list[str] = field(default_factory=list)
    named: Sequence[str] = ()
    status: int = FAILED
    first_token_at: float = -1.0
    ended_at: float = -1.0
    ok: bool = False

    @property
    def prompt_tokens(self) -> int:
        return self.arrival.prompt_tokens

    @property
    def ttft_s(self) -> float | None:
        """From the gateway's sending to the first token; None where none came."""
        return self.first_token_at - self.sent_at if self.first_token_at >= 0 else None

    def record(self, origin: float, model: str) -> Record:
        """As the load's clients note it; `origin` is the start of the load."""
        ended = self.ended_at if self.ended_at >= 0 else self.sent_at
        ttft = self.ttft_s
        error = "" if self.ok else "failed"
        return Record(
            id=self.arrival.id,
            sent_s=self.sent_at - origin,
            late_ms=0.0,
            kind=self.arrival.kind,
            model=model,
            prompt_tokens=self.arrival.prompt_tokens,
            prompt_bytes=self.body_bytes,
            max_tokens=self.arrival.max_tokens,
            status=self.status,
            cell=self.cell,
            ttft_ms=None if ttft is None else ttft * 1e3,
            e2e_ms=(ended - self.sent_at) * 1e3,
            done=self.ok,
            error=error,
            first_ok=self.ok,
            first_status=self.status,
            first_cell=self.cell,
            first_error=error,
            first_over_ms=(ended - self.sent_at) * 1e3,
            session=self.arrival.session,
            turn=self.arrival.turn,
        )
