"""One set of parameters at work on a replayed fleet, and what a recording says of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from headrace_controller.control.recording.entries import RecordingError
from headrace_controller.control.recording.shares import Mean, Member, Split
from headrace_controller.inventory import Fleet
from headrace_controller.pressure import PressureModel
from headrace_controller.projection import Projected, Projector
from headrace_controller.settings import LifecycleSettings, PressureSettings, ProjectionSettings


@dataclass(frozen=True, slots=True)
class Parameters:
    """What weights are computed with."""

    pressure: PressureSettings
    projection: ProjectionSettings


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """What a recording says of the settings it was made with."""

    parameters: Parameters
    lifecycle: LifecycleSettings
    ttft_slos: Mapping[str, float]
    gateway_trust_s: float


class Variant:
    """A scorer and a projector with these parameters; `split` is what they last gave."""

    def __init__(self, gateways: tuple[str, ...], parameters: Parameters, world: ReplaySettings) -> None:
        self.model = PressureModel(
            parameters.pressure,
            len(gateways),
            jump=parameters.projection.emergency,
            ttft_slos=world.ttft_slos,
            gateway_trust_s=world.gateway_trust_s,
        )
        self.projector = Projector(parameters.projection, gateways, world.lifecycle.ramp_s)
        self.mean = Mean()
        self.pushes = 0
        self.split: Split | None = None
        self._of: tuple[Any, Any] | None = None
        self._members: tuple[Member, ...] = ()

    def tick(self, fleet: Fleet, at: float, force: bool, intents: Any) -> None:
        """Score the fleet as of `at`; `force` pushes whatever the pace says."""
        pressures = self.model.tick(fleet, at)
        projected = self.projector.tick(fleet, pressures, at, force=force, intents=intents)
        self.pushes += projected.plan is not None
        self.split = Split(self._named(fleet, projected), projected.pool, projected.weights)

    def _named(self, fleet: Fleet, projected: Projected) -> tuple[Member, ...]:
        """The members by name; the same object for as long as they are the same."""
        of = (projected.row, projected.pools)
        if self._of is None or self._of[0] is not of[0] or self._of[1] is not of[1]:
            models = projected.pools.models
            members = tuple(
                (fleet.facts_of(row).cell_id, models[pool])
                for row, pool in zip(projected.row.tolist(), projected.pool.tolist(), strict=True)
            )
            self._of = of
            if members != self._members:
                self._members = members
        return self._members


def settings_of(told: Mapping[str, Any]) -> ReplaySettings:
    """The settings that a recording names, in the words of this version."""
    try:
        return ReplaySettings(
            Parameters(
                PressureSettings.model_validate(told["pressure"]),
                ProjectionSettings.model_validate(told["projection"]),
            ),
            LifecycleSettings.model_validate(told["lifecycle"]),
            {str(model): float(slo) for model, slo in told["ttft_slos"].items()},
            float(told["gateway_trust_s"]),
        )
    except ValidationError as error:
        raise RecordingError(
            f"its settings are not those of this version: {error.errors()[0]['msg']} "
            f"({'.'.join(map(str, error.errors()[0]['loc']))})"
        ) from error
