"""What operators want of the weights, as one immutable value.

Of these only the pins are law: a model's requests never leave the sites that it is pinned to, and
get a 503 where none of them has a READY cell. A cordon is a wish: it takes a site's cells out of a
pool as long as that leaves the pool any cell. Nothing here brings a cell back that the lifecycle has
taken out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Intents:
    """Everything that operators ask for at one time. Make a new one for each change.

    `shadow`: compute and explain, and move no weight: a gateway keeps what it holds, and a cell that
    joins gets the middle of its pool. `frozen`: the same, without computing what would be pushed.
    Both follow the lifecycle: cells that fail leave, cells that are READY join. `overrides`: cell id →
    the weight that it has in all its pools at every gateway, 1 … `max_weight`; beyond that it is
    clipped. `cordoned_sites` get no new requests where another site can take them. `pins`: model →
    the only sites that may serve it; an empty set serves it nowhere. `picker_off` leaves every request
    to the weights.
    """

    shadow: bool = False
    frozen: bool = False
    picker_off: bool = False
    overrides: Mapping[str, int] = field(default_factory=dict)
    cordoned_sites: frozenset[str] = frozenset()
    pins: Mapping[str, frozenset[str]] = field(default_factory=dict)


NO_INTENTS: Final = Intents()
