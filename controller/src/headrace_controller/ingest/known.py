"""What the fleet already knows, as ingest asks for it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from headrace_pb.v1 import telemetry_pb2 as pb


class Known(Protocol):
    """What stands of a node's earlier Hellos, and how many more models the fleet takes."""

    def facts(self, node: str, cell_id: str) -> pb.CellFacts | None:
        """The facts in force of a cell that the node speaks for; None where it speaks for no such cell."""
        ...

    def models_of(self, node: str) -> Collection[str]:
        """The models that the node's cells are known to serve."""
        ...

    def has_model(self, model: str) -> bool:
        """True for a model that has a pool."""
        ...

    def room(self) -> int:
        """How many models may still get a pool."""
        ...


class NothingKnown:
    """The word of a fleet that remembers nothing and takes everything."""

    def facts(self, node: str, cell_id: str) -> pb.CellFacts | None:
        """None: no cell is known."""
        del node, cell_id
        return None

    def models_of(self, node: str) -> Collection[str]:
        """No models."""
        del node
        return ()

    def has_model(self, model: str) -> bool:
        """True: no model needs room."""
        del model
        return True

    def room(self) -> int:
        """None is needed."""
        return 0
