"""Requests from public traces, their times rescaled to the rate asked for."""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Literal

import numpy as np

from headrace_lab.load.arrivals import Arrival, arrival_times, check_amount
from headrace_lab.scenarios.loads import TraceLoad

FOLDER = "trace_files"
REPEAT_OFFSET = 1 << 40
"""Added to a block's id for each time that a trace is gone through: repetition shares nothing."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace, `at_s` seconds after its first; sizes in tokens."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@cache
def read_trace(file: str, form: Literal["azure", "mooncake"]) -> tuple[TraceRequest, ...]:
    """All requests of a packaged trace, in order of time. Raises OSError or ValueError."""
    raw = files("headrace_lab.load").joinpath(FOLDER, file).read_bytes()
    text = gzip.decompress(raw).decode("utf-8")
    found = _read_azure(text) if form == "azure" else _read_mooncake(text)
    return tuple(sorted(found, key=lambda r: r.at_s))


def _read_azure(text: str) -> list[TraceRequest]:
    rows = list(csv.DictReader(io.StringIO(text)))
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
    first = min(times)
    return [
        TraceRequest(
            (at - first).total_seconds(),
            max(1, int(row["ContextTokens"])),
            max(1, int(row["GeneratedTokens"])),
        )
        for at, row in zip(times, rows, strict=True)
    ]


def _read_mooncake(text: str) -> list[TraceRequest]:
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return [
        TraceRequest(
            row["timestamp"] / 1000,
            max(1, row["input_length"]),
            max(1, row["output_length"]),
            tuple(row["hash_ids"]),
        )
        for row in rows
    ]


def from_trace(load: TraceLoad, *, rps: float, seconds: float, seed: int, most_tokens: int) -> list[Arrival]:
    """A stretch of the trace, chosen by the seed, at `rps` on average over exactly `seconds`.

    The stretch holds `rps * seconds` consecutive requests; a stretch that passes the trace's end
    goes on at its start. Gaps keep their proportions, or are a Poisson process's. Prompts are cut so that
    prompt and output fit in `most_tokens`. Raises ValueError for amounts out of bounds.
    """
    check_amount(rps, seconds)
    trace = read_trace(load.file, load.format)
    rng = np.random.default_rng(seed)
    start = int(rng.integers(len(trace)))
    if load.arrivals == "poisson":
        times = [float(at) for at in arrival_times(rng, rps, seconds, "poisson")]
        stretch = _stretch(trace, start, len(times))
    else:
        stretch = _stretch(trace, start, max(1, round(rps * seconds)))
        times = _rescaled(stretch, seconds)
    return [
        _fitted(
            Arrival(
                id=i,
                at_s=at,
                kind="short",
                prompt_tokens=each.prompt_tokens,
                max_tokens=each.output_tokens,
                prefix=each.blocks,
                prefix_block=load.prefix_block,
            ),
            most_tokens,
        )
        for i, (at, each) in enumerate(zip(times, stretch, strict=True))
    ]


def _rescaled(stretch: list[TraceRequest], seconds: float) -> list[float]:
    """Their times, from 0 on, so that the stretch fills `seconds`."""
    count, first = len(stretch), stretch[0].at_s
    length = stretch[-1].at_s - first
    scale = seconds * (count - 1) / count / length if length > 0 else 0.0
    return [(each.at_s - first) * scale for each in stretch]


def _stretch(trace: tuple[TraceRequest, ...], start: int, count: int) -> list[TraceRequest]:
    """`count` requests from `start` on; each time round shifts the times and renames the blocks."""
    mean_gap = trace[-1].at_s / max(1, len(trace) - 1)
    period = trace[-1].at_s + mean_gap
    found = []
    for i in range(start, start + count):
        laps, index = divmod(i, len(trace))
        each = trace[index]
        blocks = tuple(block + laps * REPEAT_OFFSET for block in each.blocks)
        found.append(TraceRequest(each.at_s + laps * period, each.prompt_tokens, each.output_tokens, blocks))
    return found


def _fitted(arrival: Arrival, most_tokens: int) -> Arrival:
    """Cut to `most_tokens`: the output to half of them at most, the prompt to the rest."""
    output = min(arrival.max_tokens, max(1, most_tokens // 2))
    prompt = min(arrival.prompt_tokens, max(1, most_tokens - output))
    blocks = -(-prompt // arrival.prefix_block) if arrival.prefix_block else 0
    return replace(arrival, prompt_tokens=prompt, max_tokens=output, prefix=arrival.prefix[:blocks])
