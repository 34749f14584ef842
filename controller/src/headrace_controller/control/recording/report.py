"""What a replay found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One membership. Shares are of its pool's requests, 0 to 1, over the time it was in it, and over
    all gateways; weights are the last, by gateway. None = it never had one."""

    cell: str
    model: str
    share_before: float | None
    share_after: float | None
    weights_recorded: tuple[int, ...]
    weights_before: tuple[int, ...]
    weights_after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Worst:
    """The greatest difference of a share at one moment, `at_s` after the beginning."""

    difference: float = 0.0
    cell: str = ""
    model: str = ""
    gateway: str = ""
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """What would have changed. `before` is the recording computed again with its own parameters, and
    `fidelity` how far that is from the weights that were recorded."""

    seconds: float
    ticks: int
    gateways: tuple[str, ...]
    pushes_recorded: int
    pushes_before: int
    pushes_after: int
    worst: Worst
    fidelity: Worst
    rows: tuple[Row, ...]
