"""The plan: for every pool and gateway, the endpoints and integer weights to publish."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, overload

from headrace_controller.capability import SizeBound


class Endpoint(NamedTuple):
    """One cell as a gateway is told of it; `weight` is an integer of at least 1."""

    cell_id: str
    host: str
    port: int
    weight: int


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The addresses of a pool's members, column by column and in one order.

    One object serves for as long as nothing of it changes, so that who compares plans may begin
    with its identity. `tls` are the ids of those that are reached by TLS.
    """

    ids: Sequence[str]
    hosts: Sequence[str]
    ports: Sequence[int]
    tls: frozenset[str] = frozenset()

    @classmethod
    def of(cls, cells: Iterable[tuple[str, str, int]], tls: Iterable[str] = ()) -> Cells:
        """The columns of (id, host, port), and who is reached by TLS."""
        rows = list(cells)
        return cls(
            [cell_id for cell_id, _, _ in rows],
            [host for _, host, _ in rows],
            [port for *_, port in rows],
            frozenset(tls),
        )


class Endpoints(Sequence[Endpoint]):
    """Endpoints in columns: the `cells` and, in their order, the `weights`.

    A plan of ten thousand endpoints moves every second; row by row it would be made of little else
    than rows.
    """

    __slots__ = ("cells", "weights")

    def __init__(self, cells: Cells, weights: Sequence[int]) -> None:
        self.cells = cells
        self.weights = weights

    @classmethod
    def of(cls, endpoints: Iterable[Endpoint]) -> Endpoints:
        """The columns of `endpoints`."""
        rows = list(endpoints)
        return cls(Cells.of((row.cell_id, row.host, row.port) for row in rows), [row.weight for row in rows])

    @overload
    def __getitem__(self, at: int) -> Endpoint: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Endpoint]: ...

    def __getitem__(self, at: int | slice) -> Endpoint | Sequence[Endpoint]:
        if isinstance(at, slice):
            return list(self)[at]
        cells = self.cells
        return Endpoint(cells.ids[at], cells.hosts[at], cells.ports[at], self.weights[at])

    def __len__(self) -> int:
        return len(self.weights)

    def __iter__(self) -> Iterator[Endpoint]:
        cells = self.cells
        return map(Endpoint, cells.ids, cells.hosts, cells.ports, self.weights)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Endpoints):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class ClassShape:
    """A capability class: the cells that take `max_model_len` tokens and more. The last class of a pool
    has no bounds: it takes what is left, and what does not say how long it is."""

    max_model_len: int
    bounds: tuple[SizeBound, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolShape:
    """What gateways must know of a pool besides its endpoints.

    `health_path` is where all its engines say how they are, "" = they do not agree on one. `tls`: some
    of its cells are reached by TLS. `max_model_len` is the greatest known. `classes` are two or more,
    from the smallest; () where the pool is one class.
    """

    health_path: str = "/health"
    tls: bool = False
    max_model_len: int | None = None
    classes: tuple[ClassShape, ...] = ()


PLAIN: Final = PoolShape()


class Plan(NamedTuple):
    """A whole, consistent fleet: `pools[model][gateway]` are the endpoints, sorted by cell id.

    Every pool names every gateway; a pool without a READY cell stands there with no endpoints,
    so that its requests get a clear 503 instead of a 404. `shapes[model]` stands there where it is not
    PLAIN; `classes[model][k][gateway]` are the endpoints of its class k. Of a pool in classes `pools`
    still holds all cells, by the weights that hold for its requests together.
    """

    pools: Mapping[str, Mapping[str, Endpoints]] = MappingProxyType({})
    shapes: Mapping[str, PoolShape] = MappingProxyType({})
    classes: Mapping[str, Sequence[Mapping[str, Endpoints]]] = MappingProxyType({})

    def shape(self, model: str) -> PoolShape:
        """The shape of a pool."""
        return self.shapes.get(model, PLAIN)
