"""A request inside the engine, and the batch of one step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from headrace_lab.engine.requests import Finish, FinishReason, Request


class Stage(Enum):
    """Where a sequence is; a pre-empted one is WAITING again."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(slots=True, eq=False)
class Sequence:
    """A request's progress; counts in tokens, times as handed to the engine.

    Invariant: `computed < known`, where `known` is what the cache must hold before the next
    token can come: the prompt and all tokens generated so far.
    """

    request: Request
    output_tokens: int
    stops: bool
    arrived_at: float
    stage: Stage = Stage.WAITING
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    preemptions: int = 0
    admitted_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None

    @property
    def known(self) -> int:
        return self.request.prompt_tokens + self.generated

    @property
    def pending(self) -> int:
        """Tokens to compute before the next one can come."""
        return self.request.prompt_tokens + self.generated - self.computed

    @property
    def decoding(self) -> bool:
        return self.generated > 0 and self.pending == 1

    def finish(self, reason: FinishReason, now: float) -> Finish:
        """Close the books; the caller gives back the blocks."""
        admitted, first = self.admitted_at, self.first_token_at
        return Finish(
            reason=reason,
            prompt_tokens=self.request.prompt_tokens,
            generated_tokens=self.generated,
            e2e_s=now - self.arrived_at,
            queue_s=None if admitted is None else admitted - self.arrived_at,
            prefill_s=None if admitted is None or first is None else first - admitted,
            decode_s=None if first is None else now - first,
            preemptions=self.preemptions,
        )


class Chunk(NamedTuple):
    """A sequence's share of a step, in tokens."""

    sequence: Sequence
    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One forward pass: due at `started_at + duration_s`.

    `tensor` and `bandwidth` are the shares of its time in which the tensor pipes and the memory
    interface are at work, [0, 1].
    """

    started_at: float
    duration_s: float
    chunks: tuple[Chunk, ...]
    prefill_tokens: int
    decode_tokens: int
    tensor: float
    bandwidth: float
