"""P99 TTFT below saturation: whether an arm is no worse than the better plain one, on the same requests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_lab.matrix.summary import PLAIN, Interval
from headrace_lab.matrix.work import Below

Floats = NDArray[np.float64]
BLOCK = 25
"""Requests drawn together: neighbours share their queues, and are no independent samples."""
QUANTILE = 0.99
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Tail:
    """One load and arm over all repetitions: P99 TTFT in ms, and its ratio to the better of rr and lr on
    the same requests, below 1 = faster."""

    load: str
    arm: str
    rps: float
    samples: int
    p99_ms: float
    vs_plain: Interval


def tails(found: Sequence[Below], confidence: float, seed: int = 1) -> list[Tail]:
    """A tail for each load and arm, in the order found."""
    lines = []
    for load in dict.fromkeys(each.load for each in found):
        own = [each for each in found if each.load == load and all(each.ttft_ms.values())]
        if not own:
            continue
        lines += _of_load(load, own, confidence, seed)
    return lines


def _of_load(load: str, own: Sequence[Below], confidence: float, seed: int) -> list[Tail]:
    arms = list(own[0].ttft_ms)
    pieces = [{arm: _array(each.ttft_ms[arm]) for arm in arms} for each in own]
    whole = _p99(pieces, [np.arange(len(piece[arms[0]])) for piece in pieces])
    random = np.random.default_rng(seed)
    drawn = [
        _p99(pieces, [_blocks(random, len(piece[arms[0]])) for piece in pieces]) for _ in range(RESAMPLES)
    ]
    rps = float(np.mean([each.rps for each in own]))
    samples = sum(len(piece[arms[0]]) for piece in pieces)
    return [
        Tail(load, arm, rps, samples, whole[arm], _interval(arm, whole, drawn, confidence)) for arm in arms
    ]


def _array(values: Sequence[float | None]) -> Floats:
    return np.array([math.inf if value is None else value for value in values])


def _blocks(random: np.random.Generator, n: int) -> NDArray[np.int64]:
    """Indices of n requests in blocks that begin anywhere, going round."""
    starts = random.integers(0, n, -(-n // BLOCK))
    return ((starts[:, None] + np.arange(BLOCK)) % n).ravel()[:n]


def _p99(pieces: Sequence[Mapping[str, Floats]], chosen: Sequence[NDArray[np.int64]]) -> dict[str, float]:
    """P99 by arm over the chosen requests of all repetitions together."""
    return {
        arm: float(
            np.quantile(
                np.concatenate([piece[arm][rows] for piece, rows in zip(pieces, chosen, strict=True)]),
                QUANTILE,
                method="higher",
            )
        )
        for arm in pieces[0]
    }


def _interval(
    arm: str, whole: Mapping[str, float], drawn: Sequence[Mapping[str, float]], confidence: float
) -> Interval:
    plain = [name for name in PLAIN if name in whole]
    if not plain:
        return Interval(math.nan, math.nan, math.nan)
    ratios = [each[arm] / min(each[name] for name in plain) for each in drawn]
    tail = (1 - confidence) / 2
    low = np.quantile(ratios, tail, method="lower")
    high = np.quantile(ratios, 1 - tail, method="higher")
    return Interval(whole[arm] / min(whole[name] for name in plain), float(low), float(high))


def figures(lines: Sequence[Tail], margin: float) -> dict[str, float]:
    """`p99_ms.LOAD.ARM`, `p99_vs_plain.LOAD.ARM`, and for each arm in how many loads the upper end of
    `p99_vs_plain` is within `margin` of 1."""
    found: dict[str, float] = {}
    for line in lines:
        found[f"p99_ms.{line.load}.{line.arm}"] = line.p99_ms
        found[f"p99_vs_plain.{line.load}.{line.arm}"] = line.vs_plain.value
        found[f"p99_vs_plain_high.{line.load}.{line.arm}"] = line.vs_plain.high
    for arm in dict.fromkeys(line.arm for line in lines):
        some = [line for line in lines if line.arm == arm]
        found[f"not_inferior_p99.{arm}"] = float(sum(line.vs_plain.high <= 1 + margin for line in some))
        found[f"p99_vs_plain_median.{arm}"] = float(np.median([line.vs_plain.value for line in some]))
    return found
