"""From the inventory to a plan: the pressure model and the projector, and what they said last."""

from __future__ import annotations

from headrace_controller.control.class_watch import ClassWatch
from headrace_controller.inventory import Fleet
from headrace_controller.pressure import PressureModel, Pressures
from headrace_controller.projection import (
    CellExplanation,
    Intents,
    Plan,
    Projected,
    Projector,
    baseline_plan,
    explain,
)
from headrace_controller.settings import ControllerSettings


class Scoring:
    """Keeps the model and the projector of a fleet, and the plan that was published last."""

    def __init__(self, settings: ControllerSettings, fleet: Fleet, classes: ClassWatch) -> None:
        self.model = _model_of(settings)
        self.pressures: Pressures | None = None
        self.projected: Projected | None = None
        self.plans = 0
        self._settings = settings
        self._gateways = [gateway.id for gateway in settings.gateways]
        self._fleet = fleet
        self._classes = classes
        self._published: Plan | None = None
        self._weights: dict[str, dict[str, dict[str, int]]] | None = None
        self.projector = self._new_projector()

    @property
    def published(self) -> Plan | None:
        """The plan that gateways were given last; None where they were given none."""
        return self._published

    @published.setter
    def published(self, plan: Plan) -> None:
        self._published, self._weights = plan, None
        self.plans += 1

    def use(self, settings: ControllerSettings, now: float) -> None:
        """Other ranges, scorers and projections are in force from now on. Cells go on from the scores, the
        evidence and the weights that they have."""
        self._settings = settings
        old, told, fleet = self.model, self.projector, self._fleet
        self.model = _model_of(settings)
        for row in fleet.rows().tolist():
            self.model.restore(fleet, row, old.record(fleet, row), now)
        self.model.early = old.early
        self.model.early.use(settings.pressure.early_warning, settings.pressure.stale_after_s)
        self.projector = self._new_projector()
        self.projector.go_on_from(told)
        weights = {cell_id: self.weights_by_model(cell_id) for cell_id in fleet.cell_ids()}
        self.projector.seed(fleet, weights, now)

    def divide(self) -> None:
        """Pools are divided into classes by another guide from the next plan on."""
        self.projector.divide(self._classes.guide)

    def baseline(self) -> Plan | None:
        """What a plain Envoy would be told; None where it is what was published."""
        plan = baseline_plan(self._fleet, self._gateways)
        return None if plan == self._published else plan

    def score(self, now: float) -> Pressures:
        """Score every cell."""
        self.pressures = self.model.tick(self._fleet, now)
        return self.pressures

    def project(self, pressures: Pressures, now: float, force: bool, intents: Intents) -> Projected:
        """Make weights of this tick's pressures."""
        self.projected = self.projector.tick(self._fleet, pressures, now, force=force, intents=intents)
        return self.projected

    def weights_by_model(self, cell_id: str) -> dict[str, dict[str, int]]:
        """The published weights of a cell, by model and gateway; empty where it has none."""
        if self._weights is None:
            self._weights = _by_cell(self._published) if self._published else {}
        return self._weights.get(cell_id, {})

    def weights_of(self, cell_id: str) -> dict[str, int]:
        """The published weight of a cell at each gateway; the most of its pools, 0 = in none."""
        by_model = self.weights_by_model(cell_id).values()
        return {
            gateway: max((each.get(gateway, 0) for each in by_model), default=0) for gateway in self._gateways
        }

    def explain(self, cell_id: str, gateway: str) -> CellExplanation | None:
        """Why the cell's weight is what it is, as of the last tick; None where it was not scored. Raises
        KeyError for an unknown cell, ValueError for an unknown gateway."""
        if self.pressures is None or self.projected is None:
            self._fleet.row(cell_id)
            return None
        return explain(
            self._fleet, self.pressures, self.projected, self._settings.projection, cell_id, gateway
        )

    def _new_projector(self) -> Projector:
        settings = self._settings
        projector = Projector(settings.projection, self._gateways, settings.lifecycle.ramp_s)
        projector.divide(self._classes.guide)
        return projector


def scored_alike(before: ControllerSettings, after: ControllerSettings) -> bool:
    """Whether the same figures give the same weights under both."""
    return (before.pressure, before.projection, before.lifecycle.ramp_s) == (
        after.pressure,
        after.projection,
        after.lifecycle.ramp_s,
    )


def _model_of(settings: ControllerSettings) -> PressureModel:
    return PressureModel(
        settings.pressure,
        len(settings.gateways),
        jump=settings.projection.emergency,
        ttft_slos={model: pool.ttft_slo_s for model, pool in settings.pools.items() if pool.ttft_slo_s},
        gateway_trust_s=settings.gateway_reports.trust_s,
    )


def _by_cell(plan: Plan) -> dict[str, dict[str, dict[str, int]]]:
    """The plan's weights as [cell][model][gateway]."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for model, gateways in plan.pools.items():
        for gateway, endpoints in gateways.items():
            for cell_id, weight in zip(endpoints.cells.ids, endpoints.weights, strict=True):
                found.setdefault(cell_id, {}).setdefault(model, {})[gateway] = weight
    return found
