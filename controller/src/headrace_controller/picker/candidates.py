"""The cells that may take the requests of one pool at one gateway, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

UNKNOWN_LENGTH = np.inf
"""The length of a cell that does not say how long its requests may be."""


@dataclass(frozen=True, eq=False)
class Lineup:
    """The m READY cells of a pool; one object for as long as nothing of it changes.

    `slots` (m,) are their numbers in the book. `lengths` (m,) are the most tokens of a request, prompt and
    answer together; UNKNOWN_LENGTH where it is not known. `greatest` is the greatest length of all known
    cells of the pool, also of those that are not READY. `addresses` are written as Envoy writes them.
    """

    model: str
    ids: Sequence[str]
    addresses: Sequence[str]
    slots: Ints
    lengths: Floats
    greatest: float = UNKNOWN_LENGTH

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def least(self) -> float:
        """The least of `lengths`; UNKNOWN_LENGTH where there is no cell."""
        return float(self.lengths.min(initial=UNKNOWN_LENGTH))

    @cached_property
    def position(self) -> dict[int, int]:
        """Slot → where it stands."""
        return {slot: at for at, slot in enumerate(self.slots.tolist())}

    def place(self, address: str) -> int | None:
        """Where the cell at an address stands; None where it is none of these."""
        return self._places.get(address)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {address: at for at, address in enumerate(self.addresses)}


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """A lineup as one gateway sees it since `at` (the controller's clock, s).

    `rtt_s` (m,) is the round trip to each cell, `penalty` (m,), at least 1, what the slow loop thinks of
    it: the factor on its cost.
    """

    lineup: Lineup
    at: float
    rtt_s: Floats
    penalty: Floats
