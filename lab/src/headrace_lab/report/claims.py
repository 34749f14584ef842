"""What a published figure is, and where ours is found beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Unit = Literal["share", "ms", "s", "ratio", "times", "us", "number"]
NOT_PUBLISHED = "-"


@dataclass(frozen=True, slots=True)
class Claim:
    """One figure, published or asked of this project alone. `theirs` and `plain` are its published values,
    for that system and for round-robin and least-request there. `figure` names ours, with {arm} where each
    arm has its own; `columns` names it arm by arm where the names have no form in common. `rps` is the rate
    that the figure is meant for, 0 = the scenario's own. `note` says what is not alike. `command` makes the
    result, with {out} for its place."""

    what: str
    scenario: str
    figure: str
    unit: Unit
    command: str
    theirs: str = NOT_PUBLISHED
    plain: str = NOT_PUBLISHED
    columns: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""
    variant: str = ""
    rps: float = 0.0
    modes: tuple[str, ...] = ("live", "sim")
    note: str = ""
    short: bool = False
    """Whether the README's table has it."""


@dataclass(frozen=True, slots=True)
class FleetClaim:
    """A published figure of the matrix, and the fleet whose matrix ours is from. `traces` = over the public
    traces, which are no part of the classes' figure."""

    what: str
    fleet: str
    theirs: str = NOT_PUBLISHED
    plain: str = NOT_PUBLISHED
    note: str = ""
    traces: bool = False

    @property
    def command(self) -> str:
        """What makes the matrix, with {out} for its place."""
        return f"headrace-lab matrix --fleet {self.fleet}{' --traces' if self.traces else ''} --out {{out}}"
