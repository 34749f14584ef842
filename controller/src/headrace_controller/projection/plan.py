"""The plan: for every pool and gateway, the endpoints and integer weights to publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Endpoint(NamedTuple):
    """One cell as a gateway is told of it; `weight` is an integer of at least 1."""

    cell_id: str
    host: str
    port: int
    weight: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole, consistent fleet: `pools[model][gateway]` are the endpoints, sorted by cell id.

    Every pool names every gateway; a pool without a READY cell stands there with no endpoints,
    so that its requests get a clear 503 instead of a 404.
    """

    pools: Mapping[str, Mapping[str, tuple[Endpoint, ...]]] = field(default_factory=dict)
