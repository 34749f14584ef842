"""Weights to plans: who stands in which pool, for which gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Fleet, Pools
from headrace_controller.lifecycle import CellState
from headrace_controller.projection.plan import Endpoint, Plan

Ints = NDArray[np.int64]

BASELINE_WEIGHT: Final = 1


def build_plan(fleet: Fleet, pools: Pools, members: Ints, weights: Ints, gateways: Sequence[str]) -> Plan:
    """The plan of some memberships: `members` (m,) index `pools`, `weights` is (G, m)
    in the order of `gateways`.

    Every known pool stands in it with every gateway, also where it has no member; endpoints are
    sorted by cell id, as memberships are.
    """
    owner = pools.pool[members].tolist()
    facts = [fleet.facts_of(row) for row in pools.row[members].tolist()]
    drafts: dict[str, dict[str, list[Endpoint]]] = {
        model: {gateway: [] for gateway in gateways} for model in pools.models
    }
    for gateway, row in zip(gateways, weights.tolist(), strict=True):
        for pool, cell, weight in zip(owner, facts, row, strict=True):
            endpoint = Endpoint(cell.cell_id, cell.host, cell.port, weight)
            drafts[pools.models[pool]][gateway].append(endpoint)
    return Plan({model: _frozen(by_gateway) for model, by_gateway in drafts.items()})


def baseline_plan(fleet: Fleet, gateways: Sequence[str]) -> Plan:
    """What a plain Envoy would be told: every cell that is not TERMINATED, all weights equal."""
    pools = fleet.pools()
    state = fleet.state[pools.row]
    members = np.flatnonzero((state != 0) & (state != CellState.TERMINATED))
    weights = np.full((len(gateways), len(members)), BASELINE_WEIGHT, dtype=np.int64)
    return build_plan(fleet, pools, members, weights, gateways)


def _frozen(by_gateway: Mapping[str, Sequence[Endpoint]]) -> dict[str, tuple[Endpoint, ...]]:
    return {gateway: tuple(endpoints) for gateway, endpoints in by_gateway.items()}
