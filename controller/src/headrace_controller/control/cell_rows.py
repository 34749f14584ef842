"""Views of many cells at once, column by column: what a page of them costs is its length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.view import CellView, MemberView
from headrace_controller.inventory import CellFacts, Fleet
from headrace_controller.inventory.columns import TOTAL_KINDS
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure import Pressures
from headrace_controller.pressure.evidence import KINDS
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.net import HostPort
from headrace_shared.signals import CELL_SIGNALS, NAMES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FALLBACKS: Final[Mapping[int, str]] = {
    pb.HARDWARE_SOURCE_NVML: "nvml",
    pb.HARDWARE_SOURCE_NONE: "dcgm_fallback",
}
_SOURCES: Final[Mapping[int, str]] = {
    pb.HARDWARE_SOURCE_DCGM: "dcgm",
    pb.HARDWARE_SOURCE_NVML: "nvml",
    pb.HARDWARE_SOURCE_NONE: "none",
}
_STATES: Final = {int(state): state.name for state in CellState} | {0: ""}


class WeightTable:
    """The published weights by gateway and row: (G, n), the most of a cell's pools, 0 = in none."""

    def __init__(self, loop: ControlLoop) -> None:
        self._loop = loop
        self._of: object = None
        self._table: Ints = np.zeros((len(loop.fleet.gateways), 0), dtype=np.int64)

    def now(self) -> Ints:
        """The table; it is made anew only after a push or a tick that gave another set of members."""
        loop, fleet = self._loop, self._loop.fleet
        of = loop.projected if loop.projected is not None else loop.published
        if of is not self._of or self._table.shape[1] != fleet.size:
            self._of, self._table = of, self._make(fleet)
        return self._table

    def _make(self, fleet: Fleet) -> Ints:
        table = np.zeros((len(fleet.gateways), fleet.size), dtype=np.int64)
        loop = self._loop
        if loop.published is None:
            return table
        if loop.projected is not None:
            inside = loop.projected.row < fleet.size
            rows = loop.projected.row[inside]
            for own, weights in zip(table, loop.projected.weights[:, inside], strict=True):
                np.maximum.at(own, rows, weights)
        else:
            for row in fleet.rows().tolist():
                told = loop.weights_of(fleet.facts_of(row).cell_id)
                table[:, row] = [told[gateway] for gateway in fleet.gateways]
        return table


class CellRows:
    """Makes views of given cells from the control loop's state."""

    def __init__(self, loop: ControlLoop) -> None:
        self._loop = loop
        self.weights = WeightTable(loop)

    def views(self, cell_ids: Sequence[str], now: float) -> list[CellView]:
        """Views of those of the cells that are known, in their order."""
        fleet = self._loop.fleet
        known = [(row, fleet.facts_of(row)) for each in cell_ids if (row := fleet.get(each)) is not None]
        if not known:
            return []
        rows = np.array([row for row, _ in known], dtype=np.int64)
        columns = self._columns(rows, now)
        return [self._view(facts, row, number, columns) for number, (row, facts) in enumerate(known)]

    def _columns(self, rows: Ints, now: float) -> dict[str, list[Any]]:
        """The figures of the rows as plain lists, None for what is absent."""
        fleet = self._loop.fleet
        found: dict[str, list[Any]] = {
            "state": fleet.state[rows].tolist(),
            "since": _plain(now - fleet.state_since[rows]),
            "heard": _plain(now - fleet.last_heard[rows]),
            "in_flight": _plain(fleet.in_flight[rows]),
            "lost": fleet.telemetry_lost[rows].tolist(),
            "source": fleet.hardware_source[rows].tolist(),
            "partial": fleet.hardware_partial[rows].tolist(),
            "member_lost": fleet.member_lost[rows].tolist(),
            "evidence": fleet.evidence[rows].astype(np.int64).tolist(),
            "weights": self.weights.now()[:, rows].T.tolist(),
            "raw": _raw_of(fleet, rows),
        }
        found |= _scores(self._loop.pressures, fleet, rows)
        return found

    def _view(self, facts: CellFacts, row: int, number: int, columns: Mapping[str, list[Any]]) -> CellView:
        loop = self._loop
        gateways = loop.fleet.gateways
        pressures = {
            gateway: value
            for gateway, value in zip(gateways, columns["pressure"][number], strict=False)
            if value is not None
        }
        contributions, signals = columns["contributions"][number], columns["signals"][number]
        state = columns["state"][number]
        in_flight = columns["in_flight"][number]
        return CellView(
            id=facts.cell_id,
            node=facts.node,
            site=facts.site,
            address=str(HostPort(facts.host, facts.port)),
            engine=f"{facts.engine_kind} {facts.engine_version}".strip(),
            models=facts.model_ids,
            state=_STATES[state],
            state_number=state,
            state_since_s=columns["since"][number] or 0.0,
            cause=loop.book.life(facts.cell_id).cause,
            pressure=max(pressures.values(), default=None),
            pressures=pressures,
            weights=dict(zip(gateways, columns["weights"][number], strict=True)),
            signals=dict(zip(NAMES, signals or columns["raw"][number], strict=True)),
            contributions=dict(zip(NAMES, contributions, strict=False)),
            fallback="partial"
            if columns["partial"][number]
            else _FALLBACKS.get(columns["source"][number], ""),
            telemetry_lost=columns["lost"][number],
            heartbeat_age_s=columns["heard"][number],
            in_flight=None if in_flight is None else int(in_flight),
            error_rate=columns["error_rate"][number],
            requests=dict(zip(TOTAL_KINDS, columns["evidence"][number], strict=True)),
            members=_members(loop.fleet, facts.cell_id, row, loop.now()),
            member_lost=columns["member_lost"][number],
            override=loop.intents.overrides.get(facts.cell_id),
            cordoned=facts.site in loop.intents.cordoned_sites,
            warnings=columns["warnings"][number],
        )


def contributions(scored: Pressures, gateway: int, rows: Ints) -> Floats:
    """(r, 10): each signal's part in the weighted mean, as Pressures.explain has it for one row."""
    values = np.hstack((scored.scored_cell[rows], scored.scored_path[gateway, rows]))
    weight = np.where(np.isnan(values), 0.0, scored.weight)
    total = weight.sum(axis=1, keepdims=True)
    share = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    parts: Floats = share * np.nan_to_num(values)
    return parts


def _scores(scored: Pressures | None, fleet: Fleet, rows: Ints) -> dict[str, list[Any]]:
    """What the last tick found for the rows; empty where no tick has scored them."""
    inside = np.zeros(0, dtype=np.int64)
    if scored is not None:
        inside = np.flatnonzero(rows < len(scored.generation))
        at = rows[inside]
        # A row may have gone to another cell since.
        inside = inside[scored.generation[at] == fleet.generation[at]]
    found: dict[str, list[Any]] = {
        "pressure": [()] * len(rows),
        "signals": [()] * len(rows),
        "contributions": [()] * len(rows),
        "error_rate": [None] * len(rows),
        "warnings": [()] * len(rows),
    }
    if scored is None or not len(inside):
        return found
    at = rows[inside]
    raw = np.hstack((scored.raw_cell[at], scored.raw_path[0, at]))
    told = {
        "pressure": _plain(scored.pressure[:, at].T),
        "signals": _plain(raw),
        "contributions": _plain(contributions(scored, 0, at)),
        "error_rate": _plain(scored.error_estimate[at]),
        "warnings": _warnings(scored, at),
    }
    for name, values in told.items():
        for number, value in zip(inside.tolist(), values, strict=True):
            found[name][number] = value
    return found


def _warnings(scored: Pressures, rows: Ints) -> list[tuple[str, ...]]:
    if scored.early is None:
        return [()] * len(rows)
    return [
        tuple(kind for kind, on in zip(KINDS, each, strict=True) if on)
        for each in scored.early.alerts[rows].tolist()
    ]


def _raw_of(fleet: Fleet, rows: Ints) -> list[Any]:
    """Signals of cells that no tick has scored yet, in the order of NAMES."""
    path = np.column_stack((fleet.rtt_ms[rows, 0], fleet.jitter_ms[rows, 0]))
    return _plain(np.hstack((fleet.signals[rows], path)))


def _plain(values: Floats) -> list[Any]:
    """As lists, with None for what is not finite."""
    finite = np.isfinite(values)
    if finite.all():
        plain: list[Any] = values.tolist()
        return plain
    told = values.astype(object)
    told[~finite] = None
    found: list[Any] = told.tolist()
    return found


def _members(fleet: Fleet, cell_id: str, row: int, now: float) -> tuple[MemberView, ...]:
    members = fleet.crews.members(row)
    if not members:
        return ()
    views = []
    for member in members:
        record = fleet.nodes.get(member.node)
        gpus = record.members.get(cell_id, ()) if record is not None else ()
        age = now - member.heard_at
        views.append(
            MemberView(
                node=member.node,
                lost=member.lost,
                heard_age_s=age if np.isfinite(age) else None,
                hardware_source=_SOURCES.get(member.figures.source, ""),
                gpus=tuple(gpu.uuid for gpu in gpus),
            )
        )
    return tuple(views)


assert (*CELL_SIGNALS, "rtt_ms", "jitter_ms") == NAMES, "columns and catalogue have one order"
