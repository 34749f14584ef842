"""The endpoints of each capability class of a pool, by weights that hold for all classes together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headrace_controller.capability import Guide, factors, falls_to, groups_of
from headrace_controller.inventory.facts import CellFacts
from headrace_controller.projection.class_steps import StepOfPool
from headrace_controller.projection.plan import Cells, Endpoints, PoolShape

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class PoolClasses:
    """One pool's members, divided into classes; `cells` are in the order of their weights.

    A class has the members that take its length. Where none of them is READY it has those of the next
    larger class, and where there is none either those of the largest there is: what they cannot take
    they refuse with an error that says why, which is more than a 503 does.
    """

    def __init__(self, model: str, cells: Sequence[CellFacts], shape: PoolShape) -> None:
        self._model = model
        self._lengths = tuple(each.max_model_len for each in shape.classes)
        self._groups = groups_of([cell.length_of(model) for cell in cells], self._lengths)
        self._members = [np.flatnonzero(self._groups >= first) for first in self._first_groups()]
        self._cells = [self._addresses(cells, members) for members in self._members]

    def endpoints(
        self, gateways: Sequence[str], weights: Ints, guide: Guide, step: StepOfPool | None = None
    ) -> Sequence[Mapping[str, Endpoints]]:
        """For each class and gateway its endpoints; `weights` (G, m) are those of the whole pool, and
        `step` takes those of a class as far as a push may, None = all the way."""
        made = self.factors(weights, guide)
        found = []
        for length, cells, members, of_class in zip(
            self._lengths, self._cells, self._members, made, strict=True
        ):
            told = _scaled(weights[:, members], of_class[self._groups[members]])
            if step is not None:
                told = step(length, members, told)
            rows: list[list[int]] = told.tolist()
            found.append(
                {gateway: Endpoints(cells, row) for gateway, row in zip(gateways, rows, strict=True)}
            )
        return found

    def factors(self, weights: Ints, guide: Guide) -> Floats:
        """(K, K): by class and group of cells, what a cell's weight is taken times."""
        mean = weights.mean(axis=0) if weights.size else np.zeros(len(self._groups))
        room: Floats = np.bincount(self._groups, weights=mean, minlength=len(self._lengths)).astype(
            np.float64
        )
        return factors(guide.demand(self._model, self._lengths), room)

    def _first_groups(self) -> list[int]:
        """For each class the smallest group that serves it."""
        there = np.bincount(self._groups, minlength=len(self._lengths))
        if not there.any():
            return list(range(len(self._lengths)))
        first: list[int] = np.minimum(falls_to(there.astype(np.float64)), np.arange(len(there))).tolist()
        return first

    def _addresses(self, cells: Sequence[CellFacts], members: Ints) -> Cells:
        own = [cells[member] for member in members.tolist()]
        return Cells.of(
            ((cell.cell_id, cell.host, cell.port) for cell in own),
            (cell.cell_id for cell in own if cell.tls),
        )


def _scaled(weights: Ints, factor: Floats) -> Ints:
    """(G, m) weights times (m,) factors, as whole numbers of at least 1."""
    scaled: Ints = np.maximum(np.rint(weights * factor), 1).astype(np.int64)
    return scaled
