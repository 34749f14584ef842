"""EDS: the endpoints and weights of one pool or class, put together of what is serialised already."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from operator import add
from typing import Final

from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2

from headrace_controller.projection.plan import Cells, Endpoints
from headrace_controller.xds.resources.transport import tls_mark
from headrace_controller.xds.resources.wire import field_of, tag_of, u32, varint

TOTAL_WEIGHT_LIMIT = 1 << 32

_CLUSTER_NAME: Final = endpoint_pb2.ClusterLoadAssignment.CLUSTER_NAME_FIELD_NUMBER
_ENDPOINTS_TAG: Final = tag_of(endpoint_pb2.ClusterLoadAssignment.ENDPOINTS_FIELD_NUMBER)
_LB_ENDPOINTS: Final = endpoint_components_pb2.LocalityLbEndpoints.LB_ENDPOINTS_FIELD_NUMBER
_WEIGHT: Final = endpoint_components_pb2.LbEndpoint.LOAD_BALANCING_WEIGHT_FIELD_NUMBER


class WeightError(ValueError):
    """Weights that Envoy refuses: one below 1, or 2^32 and more together."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An endpoint that cannot be told to Envoy, and why; the rest of its pool can."""

    pool: str
    cell_id: str
    reason: str


class Assignment:
    """The ClusterLoadAssignment of one pool, as it is serialised.

    All but the weight of an endpoint is serialised once for its address, and a message is put together
    of such pieces: that takes less than setting the weights of a message that is kept, and a pool of
    thousands that a cell joins or leaves is not built again. One flat locality: locality weights would
    distort the plan.
    """

    def __init__(self, pool: str, name: str) -> None:
        self.left_out: tuple[LeftOut, ...] = ()
        self._pool = pool
        self._named = field_of(_CLUSTER_NAME, name.encode())
        self._cells: Cells | None = None
        self._weights: Sequence[int] = ()
        self._usable: Sequence[int] | None = None
        self._pieces = _Pieces((), (), ())

    def update(self, endpoints: Endpoints, *, equal: bool = False) -> bytes | None:
        """The serialised message for `endpoints`, or None where nothing changed.

        `equal` gives every endpoint weight 1. Raises WeightError, and then keeps what it had.
        """
        weights = [1] * len(endpoints) if equal else endpoints.weights
        same_cells = self._are_same(endpoints.cells)
        if same_cells and weights == self._weights:
            return None
        check_weights(self._pool, weights)
        if not same_cells:
            self._take(endpoints.cells)
        self._cells, self._weights = endpoints.cells, weights
        told = weights if self._usable is None else [weights[at] for at in self._usable]
        if not told:
            return self._named
        locality = self._pieces.joined(told)
        return b"".join((self._named, _ENDPOINTS_TAG, varint(len(locality)), locality))

    def _are_same(self, cells: Cells) -> bool:
        """Whether Envoy sees no difference; who is left out is told by its id, too."""
        kept = self._cells
        if cells is kept:
            return True
        if kept is None:
            return False
        same = cells.hosts == kept.hosts and cells.ports == kept.ports and cells.tls == kept.tls
        return same and (not (self.left_out or cells.tls) or cells.ids == kept.ids)

    def _take(self, cells: Cells) -> None:
        """Other addresses: Envoy refuses the whole pool for a bad one, and silently drops a second host
        with the address of the first."""
        self._usable, self.left_out = None, ()
        by_tls = [cell_id in cells.tls for cell_id in cells.ids] if cells.tls else [False] * len(cells.ids)
        hosts, ports = cells.hosts, cells.ports
        known = set(map(_start, hosts, ports, repeat(False), repeat(_SHORTEST)))
        if None in known or len(known) < len(hosts):
            usable, self.left_out = _find_usable(self._pool, cells)
            hosts, ports = [hosts[at] for at in usable], [ports[at] for at in usable]
            by_tls, self._usable = [by_tls[at] for at in usable], usable
        self._pieces = _Pieces(hosts, ports, by_tls)


class _Pieces:
    """Usable addresses, serialised up to their weights."""

    def __init__(self, hosts: Sequence[str], ports: Sequence[int], by_tls: Sequence[bool]) -> None:
        self._of = (hosts, ports, by_tls)
        self._starts: dict[int, list[bytes]] = {}

    def joined(self, weights: Sequence[int]) -> bytes:
        """The locality with one endpoint an address, of these weights."""
        if max(weights) < len(_SHORT_WEIGHTS):
            return b"".join(map(add, self._starting(_SHORTEST), map(_short_weight, weights)))
        ends = list(map(_weight, weights))
        starts = {length: self._starting(length) for length in set(map(len, ends))}
        return b"".join([starts[len(end)][at] + end for at, end in enumerate(ends)])

    def _starting(self, length: int) -> list[bytes]:
        """What stands before a serialised weight of this length, for each address."""
        made = self._starts.get(length)
        if made is None:
            found = map(_start, *self._of, repeat(length))
            made = self._starts[length] = [start for start in found if start is not None]
        return made


def _find_usable(pool: str, cells: Cells) -> tuple[list[int], tuple[LeftOut, ...]]:
    """The places of those that Envoy can be told of, and the others with the reasons."""
    usable, left_out = [], []
    first: dict[tuple[str, int], str] = {}
    for at, (cell_id, given, port) in enumerate(zip(cells.ids, cells.hosts, cells.ports, strict=True)):
        host = canonical_ip(given)
        if host is None or not 0 < port <= 65535:
            left_out.append(LeftOut(pool, cell_id, f"{given}:{port} is no IP address and port"))
        elif other := first.get((host, port)):
            left_out.append(LeftOut(pool, cell_id, f"{host}:{port} is also the address of {other}"))
        else:
            first[(host, port)] = cell_id
            usable.append(at)
    return usable, tuple(left_out)


@lru_cache(maxsize=65536)
def _start(host: str, port: int, tls: bool, length: int) -> bytes | None:
    """One endpoint as it stands in a serialised locality, up to its weight, which has this length; None
    where `host` is no IP address or `port` none of TCP."""
    address = canonical_ip(host)
    if address is None or not 0 < port <= 65535:
        return None
    each = endpoint_components_pb2.LbEndpoint()
    socket = each.endpoint.address.socket_address
    socket.address, socket.port_value = address, port
    if tls:
        each.metadata.CopyFrom(tls_mark())
    whole = field_of(_LB_ENDPOINTS, each.SerializeToString() + bytes(length))
    return whole[:-length]


@lru_cache(maxsize=16384)
def _weight(weight: int) -> bytes:
    """The weight of an endpoint as it stands at its end."""
    return field_of(_WEIGHT, u32(weight).SerializeToString())


# What nearly all weights are: of one length. No weight is 0.
_SHORT_WEIGHTS: Final = [_weight(1), *map(_weight, range(1, 128))]
_SHORTEST: Final = len(_SHORT_WEIGHTS[1])
_short_weight = _SHORT_WEIGHTS.__getitem__


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
