"""Which cell takes a request: least cost, with a band in which affinity and chance decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from headrace_controller.picker.candidates import Flags, Floats, Lineup

BAND_S: Final = 0.005
"""Costs that differ by less are the same, whatever the tolerance."""


class Need(NamedTuple):
    """The length of cell that a request needs, in tokens: `likely` is safe, `surely` the least that it can
    be; `at_least` is the length of the class that it was routed to."""

    likely: float = 0.0
    surely: float = 0.0
    at_least: float = 0.0


class Choice(NamedTuple):
    """`first` and then the `fallbacks` are positions in the lineup; `by_affinity`: it is not simply one
    of the cheapest."""

    first: int
    fallbacks: Sequence[int]
    by_affinity: bool = False


def fitting(lineup: Lineup, need: Need) -> Flags | None:
    """(m,): the cells that can take the request; None = all of them.

    A cell of the pool's greatest length also takes what is likely too long, for that is an estimate and
    no other one could; never what is surely too long.
    """
    enough = max(need.likely, need.surely, need.at_least)
    if lineup.least >= enough:
        return None
    fits = lineup.lengths >= enough
    largest = max(need.surely, need.at_least)
    if lineup.greatest >= largest:
        fits |= (lineup.lengths >= lineup.greatest) & (lineup.lengths >= largest)
    return fits


def choose(
    cost: Floats,
    usable: Flags | None,
    tolerance: float,
    chance: float,
    preferred: Sequence[int] = (),
    balance: float = 0.0,
    fallbacks: int = 2,
) -> Choice | None:
    """The choice by `cost` (m,) among the `usable` (m,), None = all; None where there is none.

    Cells that cost at most `tolerance` more than the cheapest are equal, and `chance` in [0, 1) takes
    one of them: several pickers that know the same do not all take the same. The first of the
    `preferred` positions that costs at most `balance` more than the cheapest goes before them. A cost that
    is no number is that of a cell that may not be named.
    """
    cost = cost.copy() if usable is None else np.where(usable, cost, np.inf)
    if not len(cost):
        return None
    least = float(cost[cost.argmin()])
    if math.isnan(least):
        cost[np.isnan(cost)] = np.inf
        least = float(cost.min())
    if not np.isfinite(least):
        return None
    kept = least * (1.0 + balance) + BAND_S
    for at in preferred:
        if cost[at] <= kept:
            return Choice(at, _next(cost, at, fallbacks), True)
    equal = np.flatnonzero(cost <= least * (1.0 + tolerance) + BAND_S)
    first = int(equal[int(chance * len(equal))])
    return Choice(first, _next(cost, first, fallbacks))


def _next(cost: Floats, first: int, count: int) -> list[int]:
    """The cheapest others, for retries; `cost` is used up."""
    found = []
    cost[first] = np.inf
    for _ in range(count):
        at = int(cost.argmin())
        if cost[at] == np.inf:
            break
        found.append(at)
        cost[at] = np.inf
    return found
