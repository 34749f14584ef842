"""Requests of the synthetic classes: pure functions of the class, the rate, the time and the seed."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from headrace_lab.load.arrivals import Arrival, Kind, Process, arrival_times
from headrace_lab.load.traces import from_trace
from headrace_lab.scenarios.loads import Length, LoadClass, Sessions, TraceLoad

MAX_REDRAWS = 100


@dataclass(frozen=True, slots=True)
class _Turn:
    """A session's next request: `number` counts from 0, `first` is its first prompt in tokens."""

    session: int
    number: int
    first: int


def generate(
    load: LoadClass | TraceLoad,
    *,
    rps: float,
    seconds: float,
    seed: int,
    process: Process = "poisson",
    most_tokens: int = 1_000_000,
) -> list[Arrival]:
    """The requests of a class or a trace in order of time; the same for the same arguments.

    `rps` is the rate of requests (of turns, not of sessions), spikes not counted. Traces keep
    their own spacing, whatever the `process`. Prompt and output together stay within
    `most_tokens`. Raises ValueError for amounts out of bounds.
    """
    if isinstance(load, TraceLoad):
        return from_trace(load, rps=rps, seconds=seconds, seed=seed, most_tokens=most_tokens)
    rng = np.random.default_rng(seed)
    times = [float(at) for at in arrival_times(rng, rps, seconds, process)]
    if load.sessions is None:
        made = _independent(load, times, rng)
    else:
        made = _sessions(load, load.sessions, times, rps, rng)
    made += _spikes(load, seconds, rng)
    made.sort(key=lambda arrival: arrival.at_s)
    return [_fitted(arrival, i, most_tokens) for i, arrival in enumerate(made)]


def draw(length: Length, rng: np.random.Generator) -> int:
    """One length in tokens, normal and within its bounds."""
    for _ in range(MAX_REDRAWS):
        tokens = round(float(rng.normal(length.mean, length.deviation)))
        if length.least <= tokens <= length.most:
            return tokens
    return round(length.mean)


def _independent(load: LoadClass, times: list[float], rng: np.random.Generator) -> list[Arrival]:
    long = load.long
    is_long = rng.permutation(len(times)) < round((long.share if long else 0.0) * len(times))
    made = []
    for at, big in zip(times, is_long, strict=True):
        prompt = draw(load.prompt, rng)
        if long is not None and big:
            prompt = int(rng.integers(long.least, long.most, endpoint=True))
        made.append(Arrival(0, at, "long" if big else "short", prompt, draw(load.output, rng)))
    return made


def _spikes(load: LoadClass, seconds: float, rng: np.random.Generator) -> list[Arrival]:
    if load.spikes is None:
        return []
    spikes = load.spikes
    times = np.arange(spikes.first_s, seconds, spikes.every_s)
    return [
        Arrival(0, float(at), "spike", draw(load.prompt, rng), draw(load.output, rng))
        for at in times
        for _ in range(spikes.size)
    ]


def _sessions(
    load: LoadClass, plan: Sessions, times: list[float], rps: float, rng: np.random.Generator
) -> list[Arrival]:
    """Hand each arrival time to the session that has waited longest, or to a new one.

    The load begins in its steady state: with as many sessions between two turns as there will
    be on average, spread evenly over the turns.
    """
    ready: list[tuple[float, _Turn]] = []
    sessions = 0
    waiting_per_turn = max(1, round(rps / plan.turns * plan.think_s))
    for number in range(1, plan.turns):
        for _ in range(waiting_per_turn):
            # Exponential pauses have no memory: what is left of one is as long as a whole one.
            due = float(rng.exponential(plan.think_s)) if plan.think_s else 0.0
            ready.append((due, _Turn(sessions, number, draw(load.prompt, rng))))
            sessions += 1
    ready.sort(key=lambda item: (item[0], item[1].session))
    queue = [(due, turn.session, turn) for due, turn in ready]
    made = []
    for at in times:
        if queue and queue[0][0] <= at:
            _, _, turn = heapq.heappop(queue)
        else:
            turn = _Turn(sessions, 0, draw(load.prompt, rng))
            sessions += 1
        made.append(_turn_arrival(load, plan, turn, at, rng))
        if turn.number + 1 < plan.turns:
            pause = float(rng.exponential(plan.think_s)) if plan.think_s else 0.0
            following = _Turn(turn.session, turn.number + 1, turn.first)
            heapq.heappush(queue, (at + pause, turn.session, following))
    return made


def _turn_arrival(
    load: LoadClass, plan: Sessions, turn: _Turn, at: float, rng: np.random.Generator
) -> Arrival:
    kind: Kind = "short"
    if plan.shapes:
        shape = plan.shapes[turn.number % len(plan.shapes)]
        prompt, output = draw(shape.prompt, rng), draw(shape.output, rng)
        return Arrival(0, at, kind, prompt, output, turn.session, turn.number)
    prompt, output = turn.first, draw(load.output, rng)
    prefix: tuple[int, ...] = ()
    if plan.grow_to and plan.turns > 1:
        prompt = round(prompt + (plan.grow_to - prompt) * turn.number / (plan.turns - 1))
        base = (turn.session + 1) << 20
        # The last block is partly filled and changes with the next turn, so it is not shared.
        prefix = tuple(base + i for i in range(prompt // load.prefix_block))
    return Arrival(0, at, kind, prompt, output, turn.session, turn.number, prefix, load.prefix_block)


def _fitted(arrival: Arrival, number: int, most_tokens: int) -> Arrival:
    output = min(arrival.max_tokens, max(1, most_tokens // 2))
    prompt = min(arrival.prompt_tokens, max(1, most_tokens - output))
    block = arrival.prefix_block
    return Arrival(
        number,
        arrival.at_s,
        arrival.kind,
        prompt,
        output,
        arrival.session,
        arrival.turn,
        arrival.prefix[: prompt // block] if block else (),
        block,
    )
