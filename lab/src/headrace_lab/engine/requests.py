"""What goes into an engine and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to answer; sizes in tokens, both at least 1.

    `ignore_eos` makes the answer run to `max_tokens` whatever the engine's chance to stop.
    `prefix` are the ids of the leading whole prefix blocks of its prompt, each standing for its tokens
    and all before them; what a prefix cache holds of them needs no computing.
    """

    id: str
    prompt_tokens: int
    max_tokens: int = 16
    ignore_eos: bool = False
    prefix: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.max_tokens < 1:
            raise ValueError(
                f"request {self.id}: prompt_tokens {self.prompt_tokens} and max_tokens {self.max_tokens} "
                "must both be at least 1"
            )


class FinishReason(Enum):
    """Why a request ended, in the words of vLLM's `finished_reason` label."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Finish:
    """How a request ended; times in seconds.

    `queue_s` runs from arrival to the first admission, `prefill_s` from there to the first
    token, `decode_s` from there to the end; a stage that was never reached has None.
    """

    reason: FinishReason
    prompt_tokens: int
    generated_tokens: int
    e2e_s: float
    queue_s: float | None
    prefill_s: float | None
    decode_s: float | None
    preemptions: int


class Output(NamedTuple):
    """One generated token.

    `number` counts from 1. `latency_s` is the time since arrival for the first token (TTFT) and
    since the token before it for the others. `finish` is set on the last one.
    """

    request_id: str
    number: int
    latency_s: float
    finish: Finish | None


class ContextLengthError(ValueError):
    """A request that cannot fit; counts in tokens."""

    def __init__(self, prompt_tokens: int, max_tokens: int, limit: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.limit = limit
        super().__init__(
            f"{prompt_tokens} prompt tokens and {max_tokens} output tokens are more than "
            f"the context length of {limit} tokens"
        )
