"""Weights to plans: who stands in which pool and class, for which gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.capability import NO_GUIDE, Guide
from headrace_controller.inventory import Fleet, Pools
from headrace_controller.inventory.facts import CellFacts
from headrace_controller.lifecycle import CellState
from headrace_controller.projection.class_steps import ClassSteps
from headrace_controller.projection.classes import PoolClasses
from headrace_controller.projection.plan import PLAIN, Cells, Endpoints, Plan, PoolShape
from headrace_controller.projection.shapes import shape_of
from headrace_controller.settings import CapabilitySettings

Ints = NDArray[np.int64]

BASELINE_WEIGHT: Final = 1
_NO_CLASSES: Final = Guide(CapabilitySettings(classes=False))


class _Part:
    """One pool of the plan: members `first` on, and what was made of them for each gateway."""

    def __init__(
        self, model: str, first: int, cells: Sequence[CellFacts], gateways: int, shape: PoolShape
    ) -> None:
        self.model = model
        self.shape = shape
        self._span = slice(first, first + len(cells))
        self._cells = cells_of(cells)
        self._made = [Endpoints(self._cells, [])] * gateways
        self.classes = PoolClasses(model, cells, shape) if shape.classes else None

    def endpoints(self, gateway: int, weights: list[int]) -> Endpoints:
        """The endpoints by the weights of all members; those made before where they are the same."""
        own = weights[self._span]
        if own != self._made[gateway].weights:
            self._made[gateway] = Endpoints(self._cells, own)
        return self._made[gateway]

    def class_endpoints(
        self, gateways: Sequence[str], weights: Ints, guide: Guide, steps: ClassSteps | None
    ) -> Sequence[Mapping[str, Endpoints]]:
        """The endpoints of each class; only where the pool is in classes."""
        assert self.classes is not None, "a pool of one class has none"
        step = None if steps is None else steps.of(self.model, self._span)
        return self.classes.endpoints(gateways, weights[:, self._span], guide, step)


class PlanBuilder:
    """Builds plans for `gateways`, and keeps what does not change with the weights.

    Every known pool stands in a plan with every gateway, also where it has no member; endpoints are
    sorted by cell id, as memberships are. `guide` says how pools are divided into classes; set another
    one for the next plan.
    """

    def __init__(self, gateways: Sequence[str], guide: Guide = NO_GUIDE) -> None:
        self.guide = guide
        self._gateways = tuple(gateways)
        self._of: tuple[Pools, int, Guide] | None = None
        self._members: Ints = np.zeros(0, dtype=np.int64)
        self._parts: list[_Part] = []
        self._in_classes: list[_Part] = []
        self._shapes: Mapping[str, PoolShape] = {}

    def build(
        self, fleet: Fleet, pools: Pools, members: Ints, weights: Ints, steps: ClassSteps | None = None
    ) -> Plan:
        """The plan of some memberships: `members` (m,) index `pools`, rising; `weights` is (G, m) in
        the order of `gateways`. `steps`, begun for this push, bound the weights of classes; None = they
        are not bounded."""
        if not self._is_same(fleet, pools, members):
            self._line_up(fleet, pools, members)
        told = list(zip(range(len(self._gateways)), self._gateways, weights.tolist(), strict=True))
        made = {
            part.model: {gateway: part.endpoints(number, row) for number, gateway, row in told}
            for part in self._parts
        }
        if not self._in_classes:
            return Plan(made, self._shapes)
        classes = {
            part.model: part.class_endpoints(self._gateways, weights, self.guide, steps)
            for part in self._in_classes
        }
        return Plan(made, self._shapes, classes)

    def _is_same(self, fleet: Fleet, pools: Pools, members: Ints) -> bool:
        of = self._of
        if of is None or of[0] is not pools or of[1] != fleet.addresses_version or of[2] is not self.guide:
            return False
        return members is self._members or np.array_equal(members, self._members)

    def _line_up(self, fleet: Fleet, pools: Pools, members: Ints) -> None:
        known = list(map(fleet.facts_of, pools.row.tolist()))
        facts = [known[member] for member in members.tolist()]
        ends = np.searchsorted(pools.pool[members], np.arange(len(pools.models)), side="right").tolist()
        starts = [0, *ends][: len(ends)]
        self._shapes = self._shape(pools, known)
        self._parts = [
            _Part(model, start, facts[start:end], len(self._gateways), self._shapes.get(model, PLAIN))
            for model, start, end in zip(pools.models, starts, ends, strict=True)
        ]
        self._in_classes = [part for part in self._parts if part.classes is not None]
        self._of, self._members = (pools, fleet.addresses_version, self.guide), members

    def _shape(self, pools: Pools, known: Sequence[CellFacts]) -> Mapping[str, PoolShape]:
        """By model, where it is not PLAIN. All known cells count, so that it does not change when one
        fails and comes back."""
        ends = np.cumsum(np.bincount(pools.pool, minlength=len(pools.models))).tolist()
        starts = [0, *ends][: len(ends)]
        made = {
            model: shape_of(model, known[start:end], self.guide)
            for model, start, end in zip(pools.models, starts, ends, strict=True)
            if end > start
        }
        shapes = {model: shape for model, shape in made.items() if shape != PLAIN}
        return self._shapes if shapes == self._shapes else shapes


def cells_of(cells: Sequence[CellFacts]) -> Cells:
    """The addresses of cells."""
    return Cells(
        [cell.cell_id for cell in cells],
        [cell.host for cell in cells],
        [cell.port for cell in cells],
        frozenset([cell.cell_id for cell in cells if cell.tls]),
    )


def baseline_plan(fleet: Fleet, gateways: Sequence[str]) -> Plan:
    """What a plain Envoy would be told: every cell that is not TERMINATED, all weights equal, no
    classes."""
    pools = fleet.pools()
    state = fleet.state[pools.row]
    members = np.flatnonzero((state != 0) & (state != CellState.TERMINATED))
    weights = np.full((len(gateways), len(members)), BASELINE_WEIGHT, dtype=np.int64)
    return PlanBuilder(gateways, _NO_CLASSES).build(fleet, pools, members, weights)
