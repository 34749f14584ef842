"""Which memberships operators allow, and whose weight they have set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Fleet, Pools
from headrace_controller.projection.intents import Intents

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def place(fleet: Fleet, pools: Pools, ready: Flags, intents: Intents) -> Flags:
    """(m,): the memberships of READY cells, `ready` (m,), that may have requests.

    Pins first: they hold whatever happens. Of what they leave, cells of cordoned sites are taken out
    where that leaves their pool somebody.
    """
    members = ready
    if intents.pins:
        members = members & ~_pinned_away(fleet, pools, intents)
    if intents.cordoned_sites:
        wanted = members & ~_in_sites(fleet, pools, intents.cordoned_sites)
        served = np.bincount(pools.pool[wanted], minlength=len(pools.models)) > 0
        members = np.where(served[pools.pool], wanted, members)
    return members


def set_weights(fleet: Fleet, intents: Intents, row: Ints, most: int) -> Ints | None:
    """(m,): the weights that operators have set for the cells of `row` (m,), 0 = none; None where
    there is none at all."""
    by_row = {
        number: min(max(1, weight), most)
        for cell_id, weight in intents.overrides.items()
        if (number := fleet.get(cell_id)) is not None
    }
    if not by_row:
        return None
    return np.array([by_row.get(number, 0) for number in row.tolist()], dtype=np.int64)


def _pinned_away(fleet: Fleet, pools: Pools, intents: Intents) -> Flags:
    away = np.zeros(len(pools.row), dtype=np.bool_)
    for model, sites in intents.pins.items():
        number = pools.index.get(model)
        if number is not None:
            away |= (pools.pool == number) & ~_in_sites(fleet, pools, sites)
    return away


def _in_sites(fleet: Fleet, pools: Pools, sites: frozenset[str]) -> Flags:
    return np.array([fleet.facts_of(row).site in sites for row in pools.row.tolist()], dtype=np.bool_)
