"""EDS: the endpoints and weights of one pool or class, in a message that is kept between builds."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from envoy.config.endpoint.v3 import endpoint_pb2

from headrace_controller.projection.plan import Cells, Endpoints
from headrace_controller.xds.resources.transport import tls_mark

TOTAL_WEIGHT_LIMIT = 1 << 32


class WeightError(ValueError):
    """Weights that Envoy refuses: one below 1, or 2^32 and more together."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An endpoint that cannot be told to Envoy, and why; the rest of its pool can."""

    pool: str
    cell_id: str
    reason: str


class Assignment:
    """The ClusterLoadAssignment of one pool.

    The message is kept: new weights for the same addresses are set in place, which costs a
    fraction of building it again. One flat locality: locality weights would distort the plan.
    """

    def __init__(self, pool: str, name: str) -> None:
        self.left_out: tuple[LeftOut, ...] = ()
        self._pool = pool
        self._name = name
        self._message = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
        self._cells = Cells((), (), ())
        self._weights: Sequence[int] = ()
        self._kept: list[Any] = []
        self._built = False

    def update(self, endpoints: Endpoints, *, equal: bool = False) -> bytes | None:
        """The serialised message for `endpoints`, or None where nothing changed.

        `equal` gives every endpoint weight 1. Raises WeightError, and then keeps what it had.
        """
        weights = [1] * len(endpoints) if equal else endpoints.weights
        same_cells = self._built and self._are_same(endpoints.cells)
        if same_cells and weights == self._weights:
            return None
        check_weights(self._pool, weights)
        if same_cells and not self.left_out:
            self._set_weights(weights)
        else:
            self._rebuild(endpoints, weights)
        self._built, self._cells, self._weights = True, endpoints.cells, weights
        serialised: bytes = self._message.SerializeToString()
        return serialised

    def _are_same(self, cells: Cells) -> bool:
        """Whether Envoy sees no difference; who is left out is told by its id, too."""
        kept = self._cells
        if cells is kept:
            return True
        same = cells.hosts == kept.hosts and cells.ports == kept.ports and cells.tls == kept.tls
        return same and (not (self.left_out or cells.tls) or cells.ids == kept.ids)

    def _set_weights(self, weights: Sequence[int]) -> None:
        for kept, weight, before in zip(self._kept, weights, self._weights, strict=True):
            if weight != before:
                kept.value = weight

    def _rebuild(self, endpoints: Endpoints, weights: Sequence[int]) -> None:
        left_out: list[LeftOut] = []
        usable = list(self._usable(endpoints, weights, left_out))
        self.left_out = tuple(left_out)
        # A new one each time: a message gives the memory of what was deleted from it back with itself only.
        self._message = endpoint_pb2.ClusterLoadAssignment(cluster_name=self._name)
        self._kept = []
        if not usable:
            return
        locality = self._message.endpoints.add().lb_endpoints
        mark = tls_mark() if endpoints.cells.tls else None
        for cell_id, host, port, weight in usable:
            # Set field by field: several times faster than building and copying messages.
            each = locality.add()
            socket = each.endpoint.address.socket_address
            socket.address, socket.port_value = host, port
            each.load_balancing_weight.value = weight
            if mark is not None and cell_id in endpoints.cells.tls:
                each.metadata.CopyFrom(mark)
            self._kept.append(each.load_balancing_weight)

    def _usable(
        self, endpoints: Endpoints, weights: Sequence[int], left_out: list[LeftOut]
    ) -> Iterator[tuple[str, str, int, int]]:
        # Envoy refuses the whole pool for one bad address, and silently drops a second host with
        # the address of the first.
        first: dict[tuple[str, int], str] = {}
        for endpoint, weight in zip(endpoints, weights, strict=True):
            host = canonical_ip(endpoint.host)
            if host is None or not 0 < endpoint.port <= 65535:
                reason = f"{endpoint.host}:{endpoint.port} is no IP address and port"
            elif other := first.get((host, endpoint.port)):
                reason = f"{host}:{endpoint.port} is also the address of {other}"
            else:
                first[(host, endpoint.port)] = endpoint.cell_id
                yield endpoint.cell_id, host, endpoint.port, weight
                continue
            left_out.append(LeftOut(self._pool, endpoint.cell_id, reason))


def check_weights(pool: str, weights: Sequence[int]) -> None:
    """Raise WeightError unless Envoy takes these weights for one pool."""
    if not weights:
        return
    if min(weights) < 1:
        raise WeightError(f"pool {pool!r}: a weight of {min(weights)}; the least is 1")
    if sum(weights) >= TOTAL_WEIGHT_LIMIT:
        raise WeightError(f"pool {pool!r}: the weights sum to {sum(weights)}; the sum must be below 2^32")


@lru_cache(maxsize=65536)
def canonical_ip(host: str) -> str | None:
    """`host` as Envoy writes an IP address, or None: EDS takes no host names."""
    try:
        return None if "%" in host else str(ipaddress.ip_address(host))
    except ValueError:
        return None
