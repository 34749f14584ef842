"""What a projection is, and those there are, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace_controller.projection.asked import Asked
from headrace_controller.projection.equalise import Equaliser, Feedback
from headrace_controller.projection.headroom import headroom
from headrace_controller.projection.speed import Capacity, capacity, weights_of
from headrace_controller.settings import ProjectionSettings

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Projection(Protocol):
    """From pressures to weights 1 … `max_weight`. The order of the members does not matter. `asks` says
    what it is asked with: the `pressure`, or what `load` alone makes of it, health being apart then; `live`
    is that load not settled, for who averages over time itself."""

    asks: Literal["pressure", "load", "live"]

    @property
    def feedback(self) -> Feedback | Capacity | None:
        """What the last weights came of besides the pressures; None where there is nothing."""
        ...

    def project(self, asked: Asked) -> Ints:
        """(G, m) weights."""
        ...

    @property
    def firm(self) -> Flags | None:
        """(G, m): whose last weight goes by what is held and no reading of the moment; None = nobody's."""
        ...

    def note(self, keys: Ints, weights: Ints) -> None:
        """What gateways hold, (G, m), is known: after a judgement, and at a warm start."""
        ...


class HeadroomProjection:
    """`headroom`: this tick's pressures alone decide."""

    asks: Literal["pressure", "load", "live"] = "pressure"
    feedback: Feedback | None = None
    firm: Flags | None = None

    def __init__(self, settings: ProjectionSettings) -> None:
        self._settings = settings

    def project(self, asked: Asked) -> Ints:
        """See `headroom`."""
        return headroom(asked.pressure, asked.ramp, asked.pool, asked.pools, self._settings, asked.reach)

    def note(self, keys: Ints, weights: Ints) -> None:
        """Nothing depends on what was pushed."""


class EqualiseProjection:
    """`equalise`: log-weights that are moved until pressures are equal."""

    asks: Literal["pressure", "load", "live"] = "live"
    firm: Flags | None = None

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


class SpeedProjection:
    """`speed`: what each can do decides, and what is wrong with it."""

    asks: Literal["pressure", "load", "live"] = "load"

    def __init__(self, settings: ProjectionSettings) -> None:
        self._settings = settings
        self.feedback: Capacity | None = None
        self.firm: Flags | None = None

    def project(self, asked: Asked) -> Ints:
        """See `capacity`."""
        if not len(asked.pool):
            self.feedback = self.firm = None
            return np.zeros(asked.pressure.shape, dtype=np.int64)
        self.feedback = found = capacity(asked, self._settings)
        # Without a deadband every wish is told.
        self.firm = None
        if self._settings.deadband and asked.blind is not None:
            self.firm = found.whole & ~asked.blind
        return weights_of(found, self._settings.max_weight)

    def note(self, keys: Ints, weights: Ints) -> None:
        """Nothing depends on what was pushed."""


PROJECTIONS: Final[Mapping[str, Callable[[ProjectionSettings], Projection]]] = MappingProxyType(
    {"speed": SpeedProjection, "headroom": HeadroomProjection, "equalise": EqualiseProjection}
)
