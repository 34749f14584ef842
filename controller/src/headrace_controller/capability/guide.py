"""What the projection is told of classes: bounds and mix, as one immutable value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.capability.boundary import Boundary, room
from headrace_controller.settings import CapabilitySettings

OUTPUT_STEPS: Final = 8
"""A class's length is divided into so many steps of `max_tokens`; each has its own bound of the size."""


@dataclass(frozen=True, slots=True)
class SizeBound:
    """Requests that fit: `max_tokens` in [`output_from`, `output_below`), None = the request does not say,
    and a body of less than `bytes_below` bytes."""

    output_from: int | None
    output_below: int | None
    bytes_below: int


@dataclass(frozen=True)
class Guide:
    """`boundaries[model, length]` are the learned ones; `mix[model][length]` the share of each class in
    the load. Make a new one for each change."""

    settings: CapabilitySettings = field(default_factory=CapabilitySettings)
    boundaries: Mapping[tuple[str, int], Boundary] = field(default_factory=dict)
    mix: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    def boundary(self, model: str, length: int) -> Boundary:
        """The boundary of a class; the settings' where nothing is learned."""
        return self.boundaries.get((model, length)) or Boundary(self.settings.bytes_per_token)

    def bounds(self, model: str, length: int) -> tuple[SizeBound, ...]:
        """What fits a class of `length` tokens.

        A request that does not bound its output may fill the whole length: engines then answer as much
        as fits. One that does needs its output beside its prompt.
        """
        boundary, tokens = self.boundary(model, length), room(length, self.settings)
        found = [SizeBound(None, None, boundary.bytes_below(tokens))]
        steps = [length * step // OUTPUT_STEPS for step in range(OUTPUT_STEPS + 1)]
        for first, end in pairwise(steps):
            below = boundary.bytes_below(tokens - end)
            if below and first < end:
                found.append(SizeBound(first, end, below))
        return tuple(found)

    def demand(self, model: str, classes: Sequence[int]) -> NDArray[np.float64] | None:
        """The share of each class in the model's load; None where it is not known."""
        mix = self.mix.get(model)
        if mix is None or set(mix) != set(classes):
            return None
        return np.array([mix[length] for length in classes])


NO_GUIDE: Final = Guide()
