"""EDS: the endpoints and weights of one pool or class, in a message that is kept between builds."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2

from headrace_controller.projection.plan import Cells, Endpoints
from headrace_controller.xds.resources.transport import tls_mark

TOTAL_WEIGHT_LIMIT = 1 << 32
_weight_of = attrgetter("load_balancing_weight")


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
        cells = endpoints.cells
        hosts = list(map(canonical_ip, cells.hosts))
        ports, by_tls = cells.ports, [cell_id in cells.tls for cell_id in cells.ids]
        self.left_out = ()
        if not _are_usable(hosts, ports):
            usable, self.left_out = _find_usable(self._pool, cells, hosts)
            hosts, ports = [hosts[at] for at in usable], [ports[at] for at in usable]
            by_tls, weights = [by_tls[at] for at in usable], [weights[at] for at in usable]
        # A new one each time: a message gives the memory of what was deleted from it back with itself only.
        self._message = endpoint_pb2.ClusterLoadAssignment(cluster_name=self._name)
        self._kept = []
        if not hosts:
            return
        # Put together from endpoints that are serialised already, and parsed as one: a pool of thousands that
        # a cell joins or leaves is not built again field by field.
        locality = self._message.endpoints.add()
        locality.MergeFromString(b"".join(map(_serialised, hosts, ports, by_tls)))
        self._kept = list(map(_weight_of, locality.lb_endpoints))
        for kept, weight in zip(self._kept, weights, strict=True):
            kept.value = weight


def _are_usable(hosts: Sequence[str | None], ports: Sequence[int]) -> bool:
    """Whether Envoy can be told of all these: it refuses the whole pool for one bad address, and silently
    drops a second host with the address of the first."""
    if not hosts:
        return True
    one_each = len(set(zip(hosts, ports, strict=True))) == len(hosts)
    return one_each and None not in hosts and min(ports) > 0 and max(ports) <= 65535


def _find_usable(
    pool: str, cells: Cells, hosts: Sequence[str | None]
) -> tuple[list[int], tuple[LeftOut, ...]]:
    """The places of those that Envoy can be told of, and the others with the reasons."""
    usable, left_out = [], []
    first: dict[tuple[str, int], str] = {}
    for at, (cell_id, given, port) in enumerate(zip(cells.ids, cells.hosts, cells.ports, strict=True)):
        host = hosts[at]
        if host is None or not 0 < port <= 65535:
            left_out.append(LeftOut(pool, cell_id, f"{given}:{port} is no IP address and port"))
        elif other := first.get((host, port)):
            left_out.append(LeftOut(pool, cell_id, f"{host}:{port} is also the address of {other}"))
        else:
            first[(host, port)] = cell_id
            usable.append(at)
    return usable, tuple(left_out)


@lru_cache(maxsize=65536)
def _serialised(host: str | None, port: int, tls: bool) -> bytes:
    """One endpoint, of weight 1, as it stands in a serialised locality."""
    locality = endpoint_components_pb2.LocalityLbEndpoints()
    each = locality.lb_endpoints.add()
    socket = each.endpoint.address.socket_address
    socket.address, socket.port_value = host or "", port
    each.load_balancing_weight.value = 1
    if tls:
        each.metadata.CopyFrom(tls_mark())
    serialised: bytes = locality.SerializeToString()
    return serialised


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
