"""What a projection is, and those there are, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace_controller.projection.asked import Asked
from headrace_controller.projection.equalise import Equaliser, Feedback
from headrace_controller.projection.headroom import headroom
from headrace_controller.settings import ProjectionSettings

Ints = NDArray[np.int64]


class Projection(Protocol):
    """From pressures to weights 1 … `max_weight`. The order of the members does not matter. `live`: it
    averages over time itself, and is asked with what load alone makes of the pressures, not settled;
    health is apart then."""

    live: bool

    @property
    def feedback(self) -> Feedback | None:
        """What the last weights came of besides the pressures; None where there is nothing."""
        ...

    def project(self, asked: Asked) -> Ints:
        """(G, m) weights."""
        ...

    def note(self, keys: Ints, weights: Ints) -> None:
        """What gateways hold, (G, m), is known: after a judgement, and at a warm start."""
        ...


class HeadroomProjection:
    """`headroom`: this tick's pressures alone decide."""

    live = False
    feedback: Feedback | None = None

    def __init__(self, settings: ProjectionSettings) -> None:
        self._settings = settings

    def project(self, asked: Asked) -> Ints:
        """See `headroom`."""
        return headroom(asked.pressure, asked.ramp, asked.pool, asked.pools, self._settings)

    def note(self, keys: Ints, weights: Ints) -> None:
        """Nothing depends on what was pushed."""


class EqualiseProjection:
    """`equalise`: log-weights that are moved until pressures are equal."""

    live = True

    def __init__(self, settings: ProjectionSettings) -> None:
        self._equaliser = Equaliser(settings)

    @property
    def feedback(self) -> Feedback | None:
        """The last step of the loop."""
        return self._equaliser.feedback

    def project(self, asked: Asked) -> Ints:
        """See `Equaliser`."""
        return self._equaliser.step(asked)

    def note(self, keys: Ints, weights: Ints) -> None:
        """Keep the loop within reach of what is in force."""
        self._equaliser.anchor(keys, weights)


PROJECTIONS: Final[Mapping[str, Callable[[ProjectionSettings], Projection]]] = MappingProxyType(
    {"headroom": HeadroomProjection, "equalise": EqualiseProjection}
)
