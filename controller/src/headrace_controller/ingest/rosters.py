"""Which nodes may report as members of which cell: the word of the cell's own node.

Pure bookkeeping. A roster outlives its node's stream, so that a restart of the head's agent does
not turn its members away; what is remembered of nodes that left is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_controller.ingest.validation import Rejection
from headrace_pb.v1 import telemetry_pb2 as pb

MAX_LEFT = 4096


@dataclass(frozen=True, slots=True)
class Roster:
    """The nodes that `owner`, which speaks for a cell, names as its members."""

    owner: str
    nodes: frozenset[str]


class Rosters:
    """The newest roster of each cell that a node speaks for."""

    def __init__(self) -> None:
        self._live: dict[str, Roster] = {}
        self._owned: dict[str, tuple[str, ...]] = {}
        self._left: dict[str, Roster] = {}

    def set(self, owner: str, cells: Sequence[pb.CellFacts]) -> None:
        """Take the rosters of all the cells that `owner` speaks for from now on."""
        for cell_id in self._owned.pop(owner, ()):
            del self._live[cell_id]
        for cell in cells:
            self._live[cell.cell_id] = Roster(owner, frozenset(cell.member_nodes))
            self._left.pop(cell.cell_id, None)
        if cells:
            self._owned[owner] = tuple(cell.cell_id for cell in cells)

    def leave(self, owner: str) -> None:
        """The owner's stream has ended: its rosters stand until somebody speaks for the cells again."""
        for cell_id in self._owned.pop(owner, ()):
            roster = self._live.pop(cell_id)
            if roster.nodes:
                self._left[cell_id] = roster
        while len(self._left) > MAX_LEFT:
            del self._left[next(iter(self._left))]

    def refusal(self, node: str, cell_id: str) -> Rejection | None:
        """Why `node` is no member of the cell now; None where it is one."""
        roster = self._live.get(cell_id) or self._left.get(cell_id)
        if roster is None:
            return Rejection(
                "member_waiting",
                f"no node has spoken for cell {cell_id} yet; start the agent of its head node, or mend the "
                "cell's id in members",
            )
        if node not in roster.nodes:
            return Rejection(
                "member_refused",
                f"node {roster.owner} speaks for cell {cell_id} and does not name node {node}; add it to the "
                "cell's nodes there, or take the cell out of members here",
            )
        return None
