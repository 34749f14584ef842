"""How traffic is split by a set of weights, over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Member = tuple[str, str]
"""A cell and a model."""


@dataclass(frozen=True, slots=True)
class Split:
    """m memberships and what gateways hold for them: weights (G, m). `pool` numbers their models."""

    members: tuple[Member, ...]
    pool: Ints
    weights: Ints

    @property
    def shares(self) -> Floats:
        """(G, m): each member's part of its pool's requests, 0 to 1."""
        pools = int(self.pool.max()) + 1 if len(self.pool) else 0
        totals = np.stack([np.bincount(self.pool, weights=row, minlength=pools) for row in self.weights])
        whole = totals[:, self.pool]
        shares: Floats = np.divide(self.weights, whole, out=np.zeros(whole.shape), where=whole > 0)
        return shares


@dataclass
class Mean:
    """The mean share of each membership over the time that it was one, over all gateways."""

    total: dict[Member, float] = field(default_factory=dict)
    seconds: dict[Member, float] = field(default_factory=dict)
    last: dict[Member, tuple[int, ...]] = field(default_factory=dict)
    _members: tuple[Member, ...] = ()
    _sum: Floats = field(default_factory=lambda: np.zeros(0))
    _time: float = 0.0

    def add(self, split: Split, seconds: float) -> None:
        """The split held for so long."""
        if split.members is not self._members:
            self.settle()
            self._members, self._sum, self._time = split.members, np.zeros(len(split.members)), 0.0
        if len(split.members):
            self._sum += split.shares.mean(axis=0) * seconds
        self._time += seconds
        for member, weights in zip(split.members, split.weights.T.tolist(), strict=True):
            self.last[member] = tuple(weights)

    def settle(self) -> None:
        """Take what was added into the sums by member."""
        for member, value in zip(self._members, self._sum.tolist(), strict=True):
            self.total[member] = self.total.get(member, 0.0) + value
            self.seconds[member] = self.seconds.get(member, 0.0) + self._time
        self._sum, self._time = np.zeros(len(self._members)), 0.0

    def of(self, member: Member) -> float | None:
        """A member's mean share; None where it never was one."""
        seconds = self.seconds.get(member, 0.0)
        return self.total[member] / seconds if seconds > 0 else None


def greatest_difference(a: Split, b: Split) -> tuple[float, Member | None, int]:
    """Where two splits of the same members differ most: by how much, whose share, at which gateway. Those
    who are in one of them only count as far as the other one's share of them, 0, goes."""
    if a.members != b.members:
        a, b = _aligned(a, b)
    if not len(a.members):
        return 0.0, None, 0
    off = np.abs(a.shares - b.shares)
    gateway, at = np.unravel_index(int(off.argmax()), off.shape)
    return float(off[gateway, at]), a.members[int(at)], int(gateway)


def _aligned(a: Split, b: Split) -> tuple[Split, Split]:
    """Both over the members of either."""
    members = tuple(dict.fromkeys((*a.members, *b.members)))
    models = {model: number for number, model in enumerate(dict.fromkeys(model for _, model in members))}
    pool = np.array([models[model] for _, model in members], dtype=np.int64)
    return _over(a, members, pool), _over(b, members, pool)


def _over(split: Split, members: Sequence[Member], pool: Ints) -> Split:
    at = {member: number for number, member in enumerate(split.members)}
    weights = np.zeros((len(split.weights), len(members)), dtype=np.int64)
    for number, member in enumerate(members):
        if member in at:
            weights[:, number] = split.weights[:, at[member]]
    return Split(tuple(members), pool, weights)
