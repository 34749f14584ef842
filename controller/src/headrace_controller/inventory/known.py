"""What the fleet knows, in the form in which ingest asks for it."""

from __future__ import annotations

from headrace_controller.inventory.facts import write_facts
from headrace_controller.inventory.fleet import Fleet
from headrace_pb.v1 import telemetry_pb2 as pb

MAX_POOLS = 4096
"""The models that a fleet may have, with those that cells named within the retention: what a gateway is
told grows with each, and every Envoy takes all routes as one message."""


class FleetKnowledge:
    """Implements headrace_controller.ingest.known.Known."""

    def __init__(self, fleet: Fleet, max_pools: int = MAX_POOLS) -> None:
        self._fleet = fleet
        self._max_pools = max_pools

    def facts(self, node: str, cell_id: str) -> pb.CellFacts | None:
        """The facts in force of a cell that the node speaks for; None where it speaks for no such cell."""
        fleet = self._fleet
        if cell_id not in fleet.node_cells(node):
            return None
        return write_facts(fleet.facts_of(fleet.row(cell_id)))

    def models_of(self, node: str) -> set[str]:
        """The models that the node's cells are known to serve."""
        fleet = self._fleet
        rows = [fleet.row(cell_id) for cell_id in fleet.node_cells(node)]
        return {model for row in rows for model in fleet.facts_of(row).model_ids}

    def has_model(self, model: str) -> bool:
        """True for a model that has a pool."""
        return model in self._fleet.model_numbers

    def room(self) -> int:
        """How many models may still get a pool."""
        return self._max_pools - len(self._fleet.model_numbers)
