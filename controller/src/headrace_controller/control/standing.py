"""What is known of the fleet now, for those who look on."""

from __future__ import annotations

from collections import deque

from headrace_controller.control.chronicle import Chronicle
from headrace_controller.control.scoring import Scoring
from headrace_controller.pressure import Alert, PressureModel, Pressures
from headrace_controller.projection import CellExplanation, Plan, Projected, Projector


class Standing:
    """The side of the control loop that is read only."""

    _scoring: Scoring
    _chronicle: Chronicle

    @property
    def self_preservation(self) -> bool:
        """True while expiries are withheld."""
        return self._chronicle.alarm

    @property
    def alerts(self) -> deque[Alert]:
        """The newest early warnings that began or ended, newest last."""
        return self._chronicle.alerts

    @property
    def model(self) -> PressureModel:
        """What scores the cells."""
        return self._scoring.model

    @property
    def projector(self) -> Projector:
        """What makes weights of the scores."""
        return self._scoring.projector

    @property
    def pressures(self) -> Pressures | None:
        """The last tick's scores; None before the first."""
        return self._scoring.pressures

    @property
    def projected(self) -> Projected | None:
        """The last tick's weights; None before the first."""
        return self._scoring.projected

    @property
    def published(self) -> Plan | None:
        """The plan that gateways were given last; None where they were given none."""
        return self._scoring.published

    @property
    def plans(self) -> int:
        """How many plans were published."""
        return self._scoring.plans

    def weights_by_model(self, cell_id: str) -> dict[str, dict[str, int]]:
        """The published weights of a cell, by model and gateway; empty where it has none."""
        return self._scoring.weights_by_model(cell_id)

    def weights_of(self, cell_id: str) -> dict[str, int]:
        """The published weight of a cell at each gateway; the most of its pools, 0 = in none."""
        return self._scoring.weights_of(cell_id)

    def explain(self, cell_id: str, gateway: str) -> CellExplanation | None:
        """Why the cell's weight is what it is, as of the last tick; None where it was not scored. Raises
        KeyError for an unknown cell, ValueError for an unknown gateway."""
        return self._scoring.explain(cell_id, gateway)
