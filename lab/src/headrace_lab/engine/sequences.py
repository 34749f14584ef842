"""A request inside the engine, and the batch of one step or of many alike."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from headrace_lab.engine.requests import Finish, FinishReason, Request

NOT_DECODING = -1


class Stage(Enum):
    """Where a sequence is; a pre-empted one is WAITING again."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(slots=True, eq=False)
class Sequence:
    """A request's progress; counts in tokens, times as handed to the engine.

    All decoding sequences gain a token in each step, so theirs are not counted one by one:
    `generated` is what it was when the sequence began to decode, at the engine's step `joined`.
    While it prefills, `computed` of the `known` tokens are in the cache.
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
    joined: int = NOT_DECODING
    ends: int = NOT_DECODING
    """The engine's step with which the last token comes, while it decodes."""
    pinned: int = 0
    """Leading prefix blocks that it keeps in the prefix cache."""
    admitted_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None

    @property
    def decoding(self) -> bool:
        return self.joined >= 0

    def finish(self, reason: FinishReason, generated: int, now: float) -> Finish:
        """Close the books; the caller gives back the blocks."""
        admitted, first = self.admitted_at, self.first_token_at
        return Finish(
            reason=reason,
            prompt_tokens=self.request.prompt_tokens,
            generated_tokens=generated,
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


@dataclass(slots=True, eq=False)
class Step:
    """One forward pass, or `count` of them in a row with one batch: due at `started_at + duration_s`.

    The first takes `first_s`; each later one `grows_s` more than the one before, for the context has
    grown. `chunks` are the prompts' shares, before them those of decoding sequences where the step was
    begun by `begin_step`. `tensor` and `bandwidth` are the shares of its time in which the tensor pipes
    and the memory interface are at work, [0, 1].
    """

    started_at: float
    count: int
    first_s: float
    grows_s: float
    chunks: tuple[Chunk, ...]
    prefill_tokens: int
    decode_tokens: int
    tensor: float
    bandwidth: float

    @property
    def duration_s(self) -> float:
        """Seconds of all its passes."""
        return self.after(self.count)

    def after(self, passes: int) -> float:
        """Seconds until so many passes are done."""
        return passes * self.first_s + passes * (passes - 1) / 2 * self.grows_s

    def done_by(self, now: float) -> int:
        """Passes that are done at `now`, at most all but the last."""
        most, elapsed = self.count - 1, now - self.started_at
        if most <= 0 or elapsed < self.first_s:
            return 0
        done = min(most, int(elapsed / self.first_s))
        while done > 0 and self.after(done) > elapsed:
            # Passes get longer, slowly: a few tries bring an estimate down to the truth.
            done = min(done - 1, int(done * elapsed / self.after(done)))
        while done < most and self.after(done + 1) <= elapsed:
            done += 1
        return done
