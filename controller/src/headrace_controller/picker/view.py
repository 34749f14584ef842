"""What the slow loop knows, as the picker's candidates: pure, array by array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace_controller.gateway.records import join_address
from headrace_controller.inventory import Fleet, Pools
from headrace_controller.lifecycle import CellState
from headrace_controller.picker.candidates import UNKNOWN_LENGTH, Flags, Floats, Ints, Lineup
from headrace_controller.xds.resources.endpoints import canonical_ip

LEAST_HEALTH: Final = 0.02
LEAST_RAMP: Final = 0.05
PRESSURE_WEIGHT: Final = 0.25
"""What full pressure adds to a cost: little, for the cost itself is made of the load."""
UNANSWERED: Final = 3
UNANSWERED_S: Final = 5.0
_READY: Final = int(CellState.READY)


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a lineup's cells in the fleet, and their generations."""

    row: Ints
    generation: Ints

    def usable(self, fleet: Fleet) -> Flags:
        """(m,): the cells that are READY now, and still the same."""
        usable: Flags = (fleet.state[self.row] == _READY) & (fleet.generation[self.row] == self.generation)
        return usable


def penalty(
    pressure: Floats, health: Floats, ramp: Floats, overrides: Ints | None, weights: Ints, refused: Flags
) -> Floats:
    """(m,), at least 1: the factor on each cell's cost.

    `pressure`, `health` (what failures and early warnings leave) and `ramp` are in [0, 1]. Where an
    operator has set a weight (`overrides`, 0 = none), cells cost as much more as they are to have less than
    the greatest of the `weights` in force. Who is out of reach is not named at all.
    """
    found = (1.0 + PRESSURE_WEIGHT * np.nan_to_num(pressure)) / np.maximum(health, LEAST_HEALTH)
    found /= np.maximum(ramp, LEAST_RAMP)
    if overrides is not None and (overrides > 0).any():
        found *= _by_hand(overrides, weights)
    found[refused] = np.inf
    return np.asarray(found)


def _by_hand(overrides: Ints, weights: Ints) -> Floats:
    """(m,), at least 1: what overrides add, beside the greatest weight of those that have none."""
    set_by_hand = overrides > 0
    others = weights[~set_by_hand]
    usual = max(int(others.max(initial=0)), 1) if len(others) else int(overrides.max())
    factor = np.where(set_by_hand, usual / np.maximum(overrides, 1), 1.0)
    return np.asarray(factor / factor.min())


def paths(fleet: Fleet, rows: Ints, gateway: int, now: float) -> tuple[Floats, Flags]:
    """(m,) each: the round trip from the gateway to each cell, s, and who is out of its reach: nothing comes
    back over the path, or tries in a row came to no answer since the cell is READY.

    What is not measured counts as the middle of what is, for a dead path must not look fastest.
    """
    rtt = fleet.rtt_ms[rows, gateway]
    rtt = np.where(np.isnan(rtt), fleet.last_rtt_ms[rows, gateway], rtt)
    known = ~np.isnan(rtt)
    rtt = np.where(known, rtt, np.median(rtt[known]) if known.any() else 0.0)
    rtt = rtt + np.nan_to_num(fleet.jitter_ms[rows, gateway])
    since = np.maximum(fleet.state_since[rows], now - UNANSWERED_S)
    mute = (fleet.unanswered[rows, gateway] >= UNANSWERED) & (fleet.unanswered_at[rows, gateway] >= since)
    return rtt / 1000.0, mute | (fleet.loss[rows, gateway] >= 1.0)


def greatest_lengths(fleet: Fleet, pools: Pools) -> Floats:
    """(p,): the greatest length of any known cell of each pool, READY or not."""
    found = np.zeros(len(pools.models))
    for pool, row in zip(pools.pool.tolist(), pools.row.tolist(), strict=True):
        found[pool] = max(found[pool], length_of(fleet, row, pools.models[pool]))
    return found


def length_of(fleet: Fleet, row: int, model: str) -> float:
    """The length of a cell for a model, tokens; UNKNOWN_LENGTH where it does not say."""
    length = fleet.facts_of(row).length_of(model)
    return UNKNOWN_LENGTH if length is None else float(length)


def placed(fleet: Fleet, rows: Sequence[int]) -> list[tuple[int, int, str]]:
    """The cells that Envoy can be told of: (place, row, address); of two at one address the first."""
    found, seen = [], set[str]()
    for place, row in enumerate(rows):
        facts = fleet.facts_of(row)
        host = canonical_ip(facts.host)
        address = "" if host is None else join_address(host, facts.port)
        if address and address not in seen:
            seen.add(address)
            found.append((place, row, address))
    return found


def line_up(
    fleet: Fleet, model: str, cells: Sequence[tuple[int, int, str]], slots: Sequence[int], greatest: float
) -> Lineup:
    """The lineup of the `cells` that `placed` gave, by their `slots`."""
    return Lineup(
        model=model,
        ids=tuple(fleet.facts_of(row).cell_id for _, row, _ in cells),
        addresses=tuple(address for *_, address in cells),
        slots=np.array(slots, dtype=np.int64),
        lengths=np.array([length_of(fleet, row, model) for _, row, _ in cells], dtype=np.float64),
        greatest=greatest,
    )
