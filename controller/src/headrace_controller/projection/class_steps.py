"""How far one push may move the weights of a pool's classes: as far as those of the pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace_controller.projection.hysteresis import find, reaches
from headrace_controller.settings import ProjectionSettings

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

StepOfPool = Callable[[int, Ints, Ints], Ints]
"""From a class's length, its members' places (n,) in the pool and their weights wanted (G, n) to those
to be told (G, n)."""


class _Held(NamedTuple):
    """What gateways hold of one class: `weights` (G, n) by membership, of which `keys` (n,) are distinct."""

    keys: Ints
    weights: Ints


class ClassSteps:
    """Remembers the class weights of the last push, by model and length of the class.

    The weights wanted follow the mix of requests, and that may change all at once. Each push moves a
    weight by the factor `max_change` at most, or by 1 where that is more; `settled` is False while any
    wants to go further. Who is new in a class, and who is free in the pool, is not limited.
    """

    def __init__(self, settings: ProjectionSettings) -> None:
        self.settled = True
        self._most = settings.max_weight
        self._low, self._high = reaches(settings.max_weight, settings.max_change)
        self._held: dict[tuple[str, int], _Held] = {}
        self._next: dict[tuple[str, int], _Held] = {}
        self._keys: Ints = np.zeros(0, dtype=np.int64)
        self._free: Flags | None = None
        self._still = False

    def take(self, other: ClassSteps) -> None:
        """Go on from what another one told, by this one's own settings."""
        self._held, self.settled = other._held, other.settled

    def seed(self, model: str, length: int, keys: Ints, weights: Ints) -> None:
        """Take `weights` (G, n) of one class, by its memberships' `keys` (n,), as pushed."""
        self._held[(model, length)] = _Held(keys, np.clip(weights, 1, self._most))

    def begin(self, keys: Ints, free: Flags | None, still: bool) -> None:
        """Begin a push: `keys` (m,) of all its memberships, and who of them is `free` (m,), None =
        nobody. `still`: who is not keeps what it has."""
        self._keys, self._free, self._still = keys, free, still
        self._next, self.settled = {}, True

    def of(self, model: str, span: slice) -> StepOfPool:
        """The steps of one pool, whose memberships are a `span` of all."""
        keys, free = self._keys[span], None if self._free is None else self._free[span]

        def step(length: int, members: Ints, wanted: Ints) -> Ints:
            own = None if free is None else free[members]
            return self._step((model, length), keys[members], own, wanted)

        return step

    def end(self) -> None:
        """The push is made. A class that was not in it is forgotten."""
        self._held = self._next

    def _step(self, of: tuple[str, int], keys: Ints, free: Flags | None, wanted: Ints) -> Ints:
        old = self._old(of, keys, wanted)
        low, high = (self._low[old], self._high[old])
        if self._still:
            low, high = np.where(old > 0, old, low), np.where(old > 0, old, high)
        told: Ints = np.minimum(np.maximum(wanted, low), high)
        if free is not None:
            told = np.where(free, wanted, told)
        self.settled &= np.array_equal(told, wanted)
        self._next[of] = _Held(keys, told)
        return told

    def _old(self, of: tuple[str, int], keys: Ints, wanted: Ints) -> Ints:
        """(G, n): what gateways hold, 0 = nothing."""
        held = self._held.get(of)
        if held is None or not len(held.keys):
            return np.zeros_like(wanted)
        if np.array_equal(held.keys, keys):
            old = held.weights
        else:
            at, found = find(held.keys, keys)
            old = np.where(found, held.weights[:, at], 0)
        return np.minimum(old, self._most)
