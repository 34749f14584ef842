"""What a projection is, and those there are, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace_controller.projection.equalise import Equaliser, Feedback
from headrace_controller.projection.headroom import headroom
from headrace_controller.settings import ProjectionSettings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Asked:
    """m members of pools, as seen from G gateways, for whom weights are asked.

    `keys` (m,) stay with a membership for its life; the same array means the same members. `pressure`
    (G, m) in [0, 1]; `ramp` (m,) in [0, 1], 1 = fully ramped; `pool` (m,) numbers of `pools` pools;
    `held` (m,) or (G, m) keep what they have whatever comes of it.
    """

    keys: Ints
    pressure: Floats
    ramp: Floats
    pool: Ints
    pools: int
    held: Flags
    now: float


class Projection(Protocol):
    """From pressures to weights 1 … `max_weight`. The order of the members does not matter."""

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

    def __init__(self, settings: ProjectionSettings) -> None:
        self._equaliser = Equaliser(settings)

    @property
    def feedback(self) -> Feedback | None:
        """The last step of the loop."""
        return self._equaliser.feedback

    def project(self, asked: Asked) -> Ints:
        """See `Equaliser`."""
        steady = ~asked.held & (asked.ramp >= 1.0)
        return self._equaliser.step(
            asked.keys, asked.pressure, asked.ramp, asked.pool, asked.pools, steady, asked.now
        )

    def note(self, keys: Ints, weights: Ints) -> None:
        """Keep the loop within reach of what is in force."""
        self._equaliser.anchor(keys, weights)


PROJECTIONS: Final[Mapping[str, Callable[[ProjectionSettings], Projection]]] = MappingProxyType(
    {"headroom": HeadroomProjection, "equalise": EqualiseProjection}
)
