"""Metrics pages of an engine and of GPUs at work: each page differs from the one before as theirs do.

Series, labels and bounds are those of captured pages under `tests/data`; what moves, and by how
much, is drawn from a seeded generator.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final, Protocol

DATA: Final = Path(__file__).parents[1] / "tests" / "data"
MODEL: Final = "meta-llama/Llama-3.3-70B-Instruct"
RANKS: Final = 2
# Requests that one rank finishes between two pages, at most; their steps and tokens follow.
MOST_REQUESTS: Final = 6
STEPS_A_REQUEST: Final = 10
GPU_SWING_MIB: Final = 4096
_STEPPED: Final = ("iteration_tokens", "inter_token_latency")
_STILL: Final = ("_created", "_info", "process_start_time", "process_max_fds", "sleep_state", "python_")
_GAUGES: Final = {"num_requests_running": 64.0, "num_requests_waiting": 32.0, "kv_cache_usage_perc": 1.0}


class _Moving(Protocol):
    """One part of a page."""

    def lines(self, rng: random.Random, requests: int) -> list[str]:
        """Its lines, after `requests` more have been served."""
        ...


class _Text:
    """Lines that stay as they are."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def lines(self, rng: random.Random, requests: int) -> list[str]:
        return self._lines


class _Counter:
    """One line with a number that only rises; `share` is how often a request moves it."""

    def __init__(self, line: str, share: float) -> None:
        self._head, value = line.rsplit(" ", 1)
        self._value = float(value)
        self._share = share

    def lines(self, rng: random.Random, requests: int) -> list[str]:
        self._value += sum(rng.random() < self._share for _ in range(requests))
        return [f"{self._head} {self._value}"]


class _Gauge:
    """One line with a number that wanders between 0 and `most`."""

    def __init__(self, line: str, most: float) -> None:
        self._head = line.rsplit(" ", 1)[0]
        self._most = most
        self._value = most / 3

    def lines(self, rng: random.Random, requests: int) -> list[str]:
        moved = self._value + rng.gauss(0.0, self._most / 20)
        self._value = min(max(moved, 0.0), self._most)
        value = self._value if self._most <= 1.0 else float(round(self._value))
        return [f"{self._head} {value}"]


class _Histogram:
    """One series: its cumulative buckets, its count and its sum."""

    def __init__(self, lines: list[str]) -> None:
        heads = [line.rsplit(" ", 1)[0] for line in lines]
        self._buckets = [head for head in heads if "_bucket{" in head]
        self._count, self._sum = (
            next(head for head in heads if re.search(rf"_{part}(\{{|$)", head)) for part in ("count", "sum")
        )
        self._bounds = [float(re.findall(r'le="([^"]+)"', head)[0]) for head in self._buckets]
        self._counts = [0] * len(self._bounds)
        self._total = 0.0
        self._often = STEPS_A_REQUEST if any(name in heads[0] for name in _STEPPED) else 1

    def lines(self, rng: random.Random, requests: int) -> list[str]:
        middle = self._bounds[len(self._bounds) // 2]
        for _ in range(requests * self._often):
            value = rng.lognormvariate(0.0, 1.0) * middle
            self._total += value
            for at in range(bisect_left(self._bounds, value), len(self._counts)):
                self._counts[at] += 1
        found = [f"{head} {count}.0" for head, count in zip(self._buckets, self._counts, strict=True)]
        return [*found, f"{self._count} {self._counts[-1]}.0", f"{self._sum} {self._total}"]


class EnginePage:
    """The page of a busy vLLM 0.32 with two data-parallel ranks and a usual model name: 100 KB."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        text = (DATA / "engine_pages" / "vllm_0.32.0_after.prom").read_text(encoding="utf-8")
        text = text.replace('model_name="tiny"', f'model_name="{MODEL}"')
        self._parts = [part for family in _families(text) for part in _parts(_ranked(family))]

    def render(self) -> bytes:
        """The next page."""
        requests = self._rng.randint(1, MOST_REQUESTS)
        lines = [line for part in self._parts for line in part.lines(self._rng, requests)]
        return ("\n".join(lines) + "\n").encode()


def _families(text: str) -> Iterator[list[str]]:
    """A page, cut before each TYPE line."""
    family: list[str] = []
    for line in text.splitlines():
        if line.startswith("# TYPE ") and family:
            yield family
            family = []
        family.append(line)
    yield family


def _ranked(family: list[str]) -> list[str]:
    """A family with the series of every rank."""
    head, lines = family[:1], family[1:]
    if not any('engine="0"' in line for line in lines):
        return family
    return head + [line.replace('engine="0"', f'engine="{rank}"') for rank in range(RANKS) for line in lines]


def _parts(family: list[str]) -> Iterator[_Moving]:
    head, lines = family[0], family[1:]
    name = head.split()[2]
    # The captures are without the HELP lines that engines write.
    yield _Text(
        [f"# HELP {name} {name.partition(':')[2].replace('_', ' ')} of this engine, since its start.", head]
    )
    if head.endswith(" histogram"):
        for _, series in groupby(lines, key=_series):
            yield _Histogram(list(series))
        return
    most = next((most for part, most in _GAUGES.items() if name.endswith(part)), None)
    for line in lines:
        if most is not None:
            yield _Gauge(line, most)
        elif any(part in name for part in _STILL) or not head.endswith(" counter"):
            yield _Text([line])
        else:
            yield _Counter(line, 0.02 if re.search(r'="([45]xx|abort|error|repetition)"', line) else 1.0)


def _series(line: str) -> str:
    """The labels of a histogram's series, whichever of its lines this is."""
    labels = re.search(r"\{(.*)\}", line)
    return re.sub(r'le="[^"]*",?', "", labels[1]).strip(",") if labels else ""


class GpuPage:
    """A DCGM exporter's page of several GPUs at work; memory that is not used is free."""

    def __init__(self, seed: int, gpus: int) -> None:
        self._rng = random.Random(seed)
        text = (DATA / "dcgm_pages" / "dcgm_t4.prom").read_text(encoding="utf-8")
        self._lines = [
            line.rsplit(" ", 1)
            for number in range(gpus)
            for line in _renumber(text, number).splitlines()
            if line and not line.startswith("#")
        ]
        self._energy = self._freed = 0

    def render(self) -> bytes:
        """The next page: every figure that is not 0 has moved a little."""
        self._freed = self._rng.randrange(GPU_SWING_MIB)
        rows = [f"{head} {self._move(head, value)}" for head, value in self._lines]
        return ("\n".join(rows) + "\n").encode()

    def _move(self, head: str, value: str) -> str:
        if "TOTAL_ENERGY" in head:
            self._energy += self._rng.randrange(10**3, 10**5)
            return str(int(value) + self._energy)
        if "_FB_" in head:
            signs = {"_FB_FREE": 1, "_FB_USED": -1}
            return str(int(value) + self._freed * next((s for part, s in signs.items() if part in head), 0))
        moved = float(value) * self._rng.uniform(0.9, 1.0)
        return f"{moved:.6f}" if "." in value else str(round(moved))


def _renumber(text: str, number: int) -> str:
    uuid = f"GPU-00000000-0000-4000-8000-{number:012d}"
    text = re.sub(r'gpu="0"', f'gpu="{number}"', text)
    text = re.sub(r'UUID="[^"]*"', f'UUID="{uuid}"', text)
    return re.sub(r'device="nvidia0"', f'device="nvidia{number}"', text)
