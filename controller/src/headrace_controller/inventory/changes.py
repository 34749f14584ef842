"""What a Hello changed in the fleet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CellAdded:
    """A cell that the fleet did not know."""

    cell_id: str


@dataclass(frozen=True, slots=True)
class CellReturned:
    """A known cell, named again by its own node: by a restarted agent, a new stream, or after a
    withdrawal."""

    cell_id: str
    restarted: bool
    """True when the agent's incarnation is a new one."""


@dataclass(frozen=True, slots=True)
class CellTakenOver:
    """A cell that another node held before."""

    cell_id: str
    from_node: str


@dataclass(frozen=True, slots=True)
class CellChanged:
    """A known cell whose address, models or site differ now: what gateways are told changes."""

    cell_id: str


@dataclass(frozen=True, slots=True)
class CellWithdrawn:
    """A cell that its node's newest Hello does not name any more."""

    cell_id: str


Change = CellAdded | CellReturned | CellTakenOver | CellChanged | CellWithdrawn
