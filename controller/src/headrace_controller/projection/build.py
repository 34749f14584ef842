"""Weights to plans: who stands in which pool, for which gateway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Fleet, Pools
from headrace_controller.lifecycle import CellState
from headrace_controller.projection.plan import Cells, Endpoints, Plan

Ints = NDArray[np.int64]

BASELINE_WEIGHT: Final = 1


class _Part:
    """One pool of the plan: members `first` to `end`, and what was made of them for each gateway."""

    def __init__(self, model: str, first: int, cells: Sequence[tuple[str, str, int]], gateways: int) -> None:
        self.model = model
        self._span = slice(first, first + len(cells))
        self._cells = Cells.of(cells)
        self._made = [Endpoints(self._cells, [])] * gateways

    def endpoints(self, gateway: int, weights: list[int]) -> Endpoints:
        """The endpoints by the weights of all members; those made before where they are the same."""
        own = weights[self._span]
        if own != self._made[gateway].weights:
            self._made[gateway] = Endpoints(self._cells, own)
        return self._made[gateway]


class PlanBuilder:
    """Builds plans for `gateways`, and keeps what does not change with the weights.

    Every known pool stands in a plan with every gateway, also where it has no member; endpoints are
    sorted by cell id, as memberships are.
    """

    def __init__(self, gateways: Sequence[str]) -> None:
        self._gateways = tuple(gateways)
        self._of: tuple[Pools, int] | None = None
        self._members: Ints = np.zeros(0, dtype=np.int64)
        self._parts: list[_Part] = []

    def build(self, fleet: Fleet, pools: Pools, members: Ints, weights: Ints) -> Plan:
        """The plan of some memberships: `members` (m,) index `pools`, rising; `weights` is (G, m) in
        the order of `gateways`."""
        if not self._is_same(fleet, pools, members):
            self._line_up(fleet, pools, members)
        told = list(zip(range(len(self._gateways)), self._gateways, weights.tolist(), strict=True))
        return Plan(
            {
                part.model: {gateway: part.endpoints(number, row) for number, gateway, row in told}
                for part in self._parts
            }
        )

    def _is_same(self, fleet: Fleet, pools: Pools, members: Ints) -> bool:
        of = self._of
        if of is None or of[0] is not pools or of[1] != fleet.addresses_version:
            return False
        return members is self._members or np.array_equal(members, self._members)

    def _line_up(self, fleet: Fleet, pools: Pools, members: Ints) -> None:
        facts = [fleet.facts_of(row) for row in pools.row[members].tolist()]
        cells = [(cell.cell_id, cell.host, cell.port) for cell in facts]
        ends = np.searchsorted(pools.pool[members], np.arange(len(pools.models)), side="right").tolist()
        starts = [0, *ends][: len(ends)]
        self._parts = [
            _Part(model, start, cells[start:end], len(self._gateways))
            for model, start, end in zip(pools.models, starts, ends, strict=True)
        ]
        self._of, self._members = (pools, fleet.addresses_version), members


def baseline_plan(fleet: Fleet, gateways: Sequence[str]) -> Plan:
    """What a plain Envoy would be told: every cell that is not TERMINATED, all weights equal."""
    pools = fleet.pools()
    state = fleet.state[pools.row]
    members = np.flatnonzero((state != 0) & (state != CellState.TERMINATED))
    weights = np.full((len(gateways), len(members)), BASELINE_WEIGHT, dtype=np.int64)
    return PlanBuilder(gateways).build(fleet, pools, members, weights)
