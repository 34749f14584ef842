"""A book with its fleet and the agents that a test plays."""

from __future__ import annotations

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import (
    Book,
    CellState,
    Instruction,
)
from headrace_controller.settings import LifecycleSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.inventory.builders import (
    SERVING,
    beat,
    hello,
    telemetry,
)

READY = CellState.READY


class Site:
    """One node per cell, a book, and time."""

    def __init__(self, *cells: str, kept: frozenset[str] = frozenset(), **settings: object) -> None:
        self.settings = LifecycleSettings(**settings)  # type: ignore[arg-type]
        self.fleet = Fleet(["g"])
        self.book = Book(self.fleet, self.settings, kept)
        self.now = 100.0
        for cell in cells:
            self.hello(cell)

    def hello(
        self, cell: str, incarnation: int = 1, named: tuple[str, ...] | None = None
    ) -> tuple[Instruction, ...]:
        said = hello(*((cell,) if named is None else named), incarnation=incarnation)
        return self.book.registered(self.fleet.register(f"n-{cell}", "s", said, self.now), self.now)

    def beat(self, cell: str, state: int = SERVING, **fields: object) -> None:
        self.fleet.apply(f"n-{cell}", telemetry(beat(cell, state=state, **fields)), self.now)  # type: ignore[arg-type]

    def event(self, cell: str, kind: int, **fields: object) -> tuple[Instruction, ...]:
        said = pb.CellEvent(cell_id=cell, kind=kind, **fields)  # type: ignore[arg-type]
        assert self.fleet.note_event(f"n-{cell}", said, self.now)
        return self.book.happened(said, self.now)

    def tick(self, seconds: float = 0.05) -> tuple[Instruction, ...]:
        self.now += seconds
        told = self.book.tick(self.now).instructions
        self.book.check()
        return told

    def state(self, cell: str) -> CellState:
        return self.book.life(cell).state


def serving(*cells: str, **settings: object) -> Site:
    site = Site(*cells, **settings)
    for cell in cells:
        site.beat(cell)
    assert len(site.tick()) == len(cells)
    assert all(site.state(cell) is READY for cell in cells)
    return site
