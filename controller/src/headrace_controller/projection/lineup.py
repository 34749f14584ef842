"""Who may have requests, in arrays that stay the same objects for as long as nothing of it changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Fleet, Pools
from headrace_controller.lifecycle import CellState
from headrace_controller.projection.intents import Intents
from headrace_controller.projection.placement import place, set_weights

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_POOL_BITS = 24
# An enum's member is looked up slowly, and this one at every tick.
READY = int(CellState.READY)


@dataclass(frozen=True)
class Lineup:
    """Who may have requests: their numbers among the memberships of `pools`, rows, pools and keys
    (m,), and the weights set for them, None = none is. `full` (m,) is what the ramp is where there is none.
    The arrays can be told by identity."""

    pools: Pools
    ready: bytes
    intents: Intents
    addresses: int
    members: Ints
    row: Ints
    pool: Ints
    keys: Ints
    overrides: Ints | None
    full: Floats


def line_up(fleet: Fleet, intents: Intents, most: int, last: Lineup | None) -> Lineup:
    """The lineup of now: `last` itself where nothing of it has changed. Weights set are `most` at most."""
    pools = fleet.pools()
    ready = fleet.state[pools.row] == READY
    mask = ready.tobytes()
    if (
        last is not None
        and last.pools is pools
        and last.ready == mask
        and last.intents is intents
        and last.addresses == fleet.addresses_version
    ):
        return last
    members = np.flatnonzero(place(fleet, pools, ready, intents))
    row = pools.row[members]
    return Lineup(
        pools,
        mask,
        intents,
        fleet.addresses_version,
        members,
        row,
        pools.pool[members],
        keys_of(fleet, pools, members),
        set_weights(fleet, intents, row, most),
        np.ones(len(row)),
    )


def keys_of(fleet: Fleet, pools: Pools, members: Ints) -> Ints:
    """(m,): a number for each membership that no other one ever has."""
    return (fleet.generation[pools.row[members]] << _POOL_BITS) | pools.ids[pools.pool[members]]
