"""Snapshots of the fleet for people and programs: plain, frozen, detached from the arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from headrace_controller.inventory.columns import TOTAL_KINDS
from headrace_controller.inventory.facts import CellFacts, GpuFacts
from headrace_controller.inventory.fleet import Fleet
from headrace_controller.inventory.members import Member
from headrace_shared.signals import CELL_SIGNALS


@dataclass(frozen=True, slots=True)
class PathView:
    """The path to one gateway; None = not measured."""

    rtt_ms: float | None
    jitter_ms: float | None
    age_s: float | None


@dataclass(frozen=True, slots=True)
class MemberView:
    """One other node under a cell. `lost`: it does not report, and its GPUs count nowhere."""

    node: str
    lost: bool
    heard_age_s: float | None
    hardware_source: int
    gpus: tuple[GpuFacts, ...]


@dataclass(frozen=True, slots=True)
class CellView:
    """One cell at one moment. Ages in seconds; None and missing keys = not known.

    `state` is a CellState number, `engine_state` and `hardware_source` are numbers of the wire.
    `evidence` counts requests by kind since this controller first heard of the cell.
    """

    facts: CellFacts
    state: int
    state_age_s: float | None
    engine_state: int
    heard_age_s: float | None
    telemetry_age_s: float | None
    serving_s: float
    in_flight: int | None
    signals: Mapping[str, float]
    paths: Mapping[str, PathView]
    hardware_source: int
    evidence: Mapping[str, float]
    held: bool
    telemetry_lost: bool
    withdrawn: bool
    members: tuple[MemberView, ...]
    member_lost: bool
    hardware_partial: bool


def view_cells(fleet: Fleet, now: float) -> tuple[CellView, ...]:
    """Every cell, sorted by id."""
    return tuple(view_cell(fleet, cell_id, now) for cell_id in fleet.cell_ids())


def view_cell(fleet: Fleet, cell_id: str, now: float) -> CellView:
    """One cell. Raises KeyError."""
    row = fleet.row(cell_id)
    return CellView(
        facts=fleet.facts_of(row),
        state=int(fleet.state[row]),
        state_age_s=_age(fleet.state_since[row], now),
        engine_state=int(fleet.engine_state[row]),
        heard_age_s=_age(fleet.last_heard[row], now),
        telemetry_age_s=_age(fleet.telemetry_at[row], now),
        serving_s=float(fleet.serving_ms[row]) / 1000,
        in_flight=None if math.isnan(fleet.in_flight[row]) else int(fleet.in_flight[row]),
        signals=_present(CELL_SIGNALS, fleet.signals[row].tolist()),
        paths={gateway: _path(fleet, row, number, now) for number, gateway in enumerate(fleet.gateways)},
        hardware_source=int(fleet.hardware_source[row]),
        evidence=dict(zip(TOTAL_KINDS, fleet.evidence[row].tolist(), strict=True)),
        held=bool(fleet.held[row]),
        telemetry_lost=bool(fleet.telemetry_lost[row]),
        withdrawn=fleet.is_withdrawn(cell_id),
        members=tuple(_member(fleet, cell_id, member, now) for member in fleet.crews.members(row)),
        member_lost=bool(fleet.member_lost[row]),
        hardware_partial=bool(fleet.hardware_partial[row]),
    )


def _member(fleet: Fleet, cell_id: str, member: Member, now: float) -> MemberView:
    record = fleet.nodes.get(member.node)
    return MemberView(
        node=member.node,
        lost=member.lost,
        heard_age_s=_age(member.heard_at, now),
        hardware_source=member.figures.source,
        gpus=record.members.get(cell_id, ()) if record is not None else (),
    )


def _path(fleet: Fleet, row: int, gateway: int, now: float) -> PathView:
    return PathView(
        rtt_ms=_known(fleet.rtt_ms[row, gateway]),
        jitter_ms=_known(fleet.jitter_ms[row, gateway]),
        age_s=_age(fleet.path_at[row, gateway], now),
    )


def _present(names: tuple[str, ...], values: list[float]) -> dict[str, float]:
    return {name: value for name, value in zip(names, values, strict=True) if math.isfinite(value)}


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _age(at: float, now: float) -> float | None:
    return float(now - at) if math.isfinite(at) else None
