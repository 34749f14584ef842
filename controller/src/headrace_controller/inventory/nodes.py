"""The agents that were heard: one record a node, forgotten when nothing is left to remember it by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace_controller.inventory.columns import Ints
from headrace_controller.inventory.facts import GpuFacts


@dataclass(slots=True)
class NodeRecord:
    """One agent as last heard.

    `row_of` has the row of each cell that it speaks for, `rows` the same as an index into the arrays:
    writing by a slice costs a tenth of writing by row numbers, so rows that follow on each other, as
    those of one Hello do, are kept as one. `listed` are these rows once more, in the order of `cells`.
    `members` are its GPUs under other nodes' cells, by cell id.
    """

    name: str
    site: str
    incarnation: int
    agent_version: str
    heard_at: float
    cells: list[str] = field(default_factory=list)
    rows: Ints | slice = field(default_factory=lambda: slice(0, 0))
    row_of: dict[str, int] = field(default_factory=dict)
    listed: list[int] = field(default_factory=list)
    members: dict[str, tuple[GpuFacts, ...]] = field(default_factory=dict)


def span(rows: Sequence[int]) -> Ints | slice:
    """The same rows, as a slice where they follow on each other."""
    first = rows[0] if rows else 0
    if all(row == first + at for at, row in enumerate(rows)):
        return slice(first, first + len(rows))
    return np.array(rows, dtype=np.int64)


class Nodes(dict[str, NodeRecord]):
    """The records by name. A node without cells is kept while it is heard: it may be a member of
    others' cells, or be about to name cells again."""

    def __init__(self) -> None:
        super().__init__()
        self._without_cells: set[str] = set()

    def keep(self, record: NodeRecord) -> None:
        """Store a record whose cells have changed."""
        self[record.name] = record
        if record.cells:
            self._without_cells.discard(record.name)
        else:
            self._without_cells.add(record.name)

    def drop(self, name: str) -> None:
        """Forget a node; nothing for an unknown one."""
        self._without_cells.discard(name)
        self.pop(name, None)

    def forget(self, now: float, retention_s: float) -> None:
        """Forget the nodes without cells of their own that were not heard for the retention."""
        for name in [each for each in self._without_cells if now - self[each].heard_at >= retention_s]:
            self.drop(name)
