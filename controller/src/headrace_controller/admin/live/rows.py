"""One short row a cell, column by column: what changes from moment to moment, rounded to what people read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.admin.surface import Surface
from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure.evidence import KINDS
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import CELL_SIGNALS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FACTS: Final = ("id", "node", "site", "address", "engine", "models")
"""The columns that change only when a node says Hello."""
COLUMNS: Final = (
    "id",
    "state",
    "since",
    "cause",
    "age",
    "in_flight",
    "errors",
    "marks",
    "pressure",
    "weight",
    "share",
    "rtt_ms",
    "jitter_ms",
    *CELL_SIGNALS,
)
"""`since` is seconds since the Unix epoch, `age` that of the last sign of life, s. `pressure`, `weight`,
`share` (of its pool's requests, by weight, averaged over its pools), `rtt_ms` and `jitter_ms` are lists,
one entry a gateway; `errors` is the estimated failed share; `cause` is given where the state is not READY."""

_DIGITS: Final = {"queue_depth": 2, "ttft_p95_s": 4}
_NAMES: Final = [""] + [CellState(number).name for number in range(1, len(CellState) + 1)]
_FALLBACKS: Final = {pb.HARDWARE_SOURCE_NVML: "nvml", pb.HARDWARE_SOURCE_NONE: "dcgm_fallback"}


class Shares:
    """(G, n): each row's share of its pool's requests, as its weight promises; a mean over its pools."""

    def __init__(self, surface: Surface) -> None:
        fleet = surface.loop.fleet
        pools, weights = fleet.pools(), surface.views.rows.weights.now()
        counts = np.maximum(np.bincount(pools.row, minlength=fleet.size), 1)
        table = np.zeros((len(fleet.gateways), fleet.size))
        self.pools = 0
        for number, row in enumerate(weights):
            members = row[pools.row].astype(np.float64)
            sums = np.bincount(pools.pool, weights=members, minlength=len(pools.models))
            self.pools = max(self.pools, int((sums > 0).sum()))
            part = members / np.maximum(sums, 1.0)[pools.pool]
            table[number] = np.bincount(pools.row, weights=part, minlength=fleet.size)
        self.total: Floats = table
        """(G, n): the shares of all its pools, added up."""
        self.mean: Floats = table / counts


def make_rows(
    surface: Surface, cell_ids: Sequence[str], shares: Shares, now: float, epoch: float
) -> list[list[Any]]:
    """The rows of those of the cells that are known, in their order; `epoch` is the wall-clock time at
    which the controller's own clock was 0, s."""
    loop = surface.loop
    fleet = loop.fleet
    known = [(each, row) for each in cell_ids if (row := fleet.get(each)) is not None]
    known = [(each, row) for each, row in known if row < shares.mean.shape[1]]
    if not known:
        return []
    at = np.array([row for _, row in known], dtype=np.int64)
    states = fleet.state[at].tolist()
    columns = [
        [each for each, _ in known],
        [_NAMES[state] for state in states],
        _plain(fleet.state_since[at] + epoch, 0),
        [
            "" if state == CellState.READY or not state else loop.book.life(each).cause
            for (each, _), state in zip(known, states, strict=True)
        ],
        _plain(now - fleet.last_heard[at], 1),
        _plain(fleet.in_flight[at], 0),
        *_scored(surface, at),
        surface.views.rows.weights.now()[:, at].T.tolist(),
        _plain(shares.mean[:, at].T, 4),
        _plain(fleet.rtt_ms[at], 1),
        _plain(fleet.jitter_ms[at], 2),
        *(
            _plain(fleet.signals[at, number], _DIGITS.get(name, 3))
            for number, name in enumerate(CELL_SIGNALS)
        ),
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _scored(surface: Surface, at: Ints) -> tuple[list[Any], list[Any], list[Any]]:
    """The columns errors, marks and pressure; empty where no tick has scored a row."""
    loop = surface.loop
    fleet, scored = loop.fleet, loop.pressures
    rates = np.full(len(at), np.nan)
    pressures = np.full((len(at), len(fleet.gateways)), np.nan)
    warned: list[list[str]] = [[] for _ in at]
    if scored is not None:
        inside = np.flatnonzero(at < len(scored.generation))
        # A row may have gone to another cell since.
        inside = inside[scored.generation[at[inside]] == fleet.generation[at[inside]]]
        rates[inside] = scored.error_estimate[at[inside]]
        pressures[inside] = scored.pressure[:, at[inside]].T
        if scored.early is not None:
            for number, alerts in zip(inside.tolist(), scored.early.alerts[at[inside]].tolist(), strict=True):
                warned[number] = [f"early:{kind}" for kind, on in zip(KINDS, alerts, strict=True) if on]
    marks = _marks(surface, fleet, at)
    for own, warnings in zip(marks, warned, strict=True):
        own += warnings
    return _plain(rates, 4), marks, _plain(pressures, 4)


def _marks(surface: Surface, fleet: Fleet, at: Ints) -> list[list[str]]:
    """What is not as it should be, as words: `nvml`, `override:50`."""
    intents = surface.loop.intents
    marks = []
    for row, lost, member, partial, source in zip(
        at.tolist(),
        fleet.telemetry_lost[at].tolist(),
        fleet.member_lost[at].tolist(),
        fleet.hardware_partial[at].tolist(),
        fleet.hardware_source[at].tolist(),
        strict=True,
    ):
        own = ["telemetry_lost"] * lost + ["member_lost"] * member
        fallback = "partial" if partial else _FALLBACKS.get(source, "")
        own += [fallback] * bool(fallback)
        if intents.overrides or intents.cordoned_sites:
            facts = fleet.facts_of(row)
            weight = intents.overrides.get(facts.cell_id)
            own += [] if weight is None else [f"override:{weight}"]
            own += ["cordoned"] * (facts.site in intents.cordoned_sites)
        marks.append(own)
    return marks


def facts_row(fleet: Fleet, cell_id: str) -> list[Any] | None:
    """The columns FACTS of a cell; None where it is not known."""
    row = fleet.get(cell_id)
    if row is None:
        return None
    facts = fleet.facts_of(row)
    engine = f"{facts.engine_kind} {facts.engine_version}".strip()
    return [cell_id, facts.node, facts.site, f"{facts.host}:{facts.port}", engine, list(facts.model_ids)]


def _plain(values: Floats, digits: int) -> list[Any]:
    """Rounded, as lists, with None for what is not finite; whole where `digits` is 0."""
    rounded = np.round(values, digits)
    finite = np.isfinite(rounded)
    told = rounded.astype(object)
    if digits == 0:
        told[finite] = rounded[finite].astype(np.int64)
    told[~finite] = None
    plain: list[Any] = told.tolist()
    return plain
