"""What the picker is asked, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What became of a pick; the metric's label."""

    NAMED = "named"
    """The cheapest cell, or one as cheap."""
    AFFINITY = "affinity"
    """The cell of the request's session."""
    LEFT = "left"
    """Left to the weights on purpose, to keep evidence coming."""
    NO_CELL = "no_cell"
    """No cell that may be named can take the request."""
    NO_POOL = "no_pool"
    """The request is for no pool that is known here."""
    STALE = "stale"
    """What is known of the fleet is too old."""
    RESTING = "resting"
    """The picker's guard has it stand aside."""
    OFF = "off"
    """An operator has switched it off."""
    BUSY = "busy"
    """Too many requests wait for their first token."""
    FAILED = "failed"
    """An error in the picker itself."""


NAMING = frozenset({Outcome.NAMED, Outcome.AFFINITY})


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, as far as a gateway knows it. `key` is unique among those under way.

    `size` is the body's, bytes, `output` the most tokens that it asks for; None = not known. `tokens` are
    those of its prompt where somebody has counted them. `routed_length` is the length of the class that
    the gateway has chosen, 0 = the whole pool, None = it does not say. `blocks` name its beginning.
    """

    key: str
    model: str
    size: int | None = None
    output: int | None = None
    streams: bool = True
    session: str = ""
    tokens: int | None = None
    routed_length: int | None = None
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Pick:
    """The answer. `cells` and `addresses` are the named one and then those for retries, () = the gateway
    goes by its weights. `predicted_s` is the time to first token of the named one."""

    outcome: Outcome
    cells: Sequence[str] = ()
    addresses: Sequence[str] = ()
    predicted_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Served:
    """What became of a request that was followed. `named`: it was named a cell, and not left to the weights;
    `as_named`: the first cell named served it. Times in s, None = not known; `error` says why the picker now
    stands aside, "" = it does not."""

    cell: str
    as_named: bool
    observed_s: float | None
    predicted_s: float | None
    error: str = ""
    named: bool = True
