"""When requests are sent and how large they are: fixed in advance by a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Process = Literal["poisson", "constant"]
Kind = Literal["short", "long", "spike"]

MAX_REQUESTS = 200_000


@dataclass(frozen=True, slots=True)
class Mix:
    """What is asked for. Prompt lengths are drawn uniformly between the two bounds, in tokens.

    `long_share` of the requests, evenly spread by the seed, are long.
    """

    short_tokens: tuple[int, int] = (100, 400)
    long_tokens: tuple[int, int] = (1200, 2000)
    long_share: float = 0.1
    max_tokens: tuple[int, int] = (8, 48)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to send: `at_s` seconds after the start of the load.

    `session` is -1 where it belongs to none; `turn` counts in it from 0. `prefix` names the
    prompt's blocks of `prefix_block` tokens from its start: two prompts that begin with the same
    ids begin with the same text.
    """

    id: int
    at_s: float
    kind: Kind
    prompt_tokens: int
    max_tokens: int
    session: int = -1
    turn: int = 0
    prefix: tuple[int, ...] = ()
    prefix_block: int = 0


def schedule(
    *, rps: float, seconds: float, seed: int, mix: Mix | None = None, process: Process = "poisson"
) -> list[Arrival]:
    """The arrivals of `seconds` at `rps` on average, in order; the same for the same arguments.

    Raises ValueError where the rate, the time or their product is out of bounds.
    """
    mix = mix or Mix()
    rng = np.random.default_rng(seed)
    times = arrival_times(rng, rps, seconds, process)
    is_long = rng.permutation(len(times)) < round(mix.long_share * len(times))
    short = rng.integers(mix.short_tokens[0], mix.short_tokens[1], len(times), endpoint=True)
    long = rng.integers(mix.long_tokens[0], mix.long_tokens[1], len(times), endpoint=True)
    answers = rng.integers(mix.max_tokens[0], mix.max_tokens[1], len(times), endpoint=True)
    return [
        Arrival(i, float(at), "long" if big else "short", int(b if big else a), int(answer))
        for i, (at, big, a, b, answer) in enumerate(zip(times, is_long, short, long, answers, strict=True))
    ]


def check_amount(rps: float, seconds: float) -> None:
    """Raise ValueError where the rate, the time or their product is out of bounds."""
    if not 0 < rps <= 10_000 or not 0 < seconds <= 86_400:
        raise ValueError("rps must lie in (0, 10000] and seconds in (0, 86400]")
    if rps * seconds > MAX_REQUESTS / 2:
        raise ValueError(f"{rps:g} rps for {seconds:g} s are more than {MAX_REQUESTS // 2} requests")


def arrival_times(rng: np.random.Generator, rps: float, seconds: float, process: Process) -> np.ndarray:
    """When requests are sent, in seconds from the start. Raises ValueError as `check_amount` does."""
    check_amount(rps, seconds)
    if process == "constant":
        return np.arange(0.0, seconds, 1.0 / rps)
    gaps = rng.exponential(1.0 / rps, MAX_REQUESTS if rps * seconds > 1000 else 4000)
    times = np.cumsum(gaps)
    return times[times < seconds]
