"""Writes the figures of a telemetry beat into the arrays.

A beat is read whole before any of it is written, so that one that cannot be read leaves its row as
it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from headrace_controller.inventory.columns import HEALTH_AT, TOTAL_KINDS, Columns, Ints
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import CELL_SIGNALS

_SIGNAL_AT: Final = {name: number for number, name in enumerate(CELL_SIGNALS)}
_TOTAL_AT: Final = {name: number for number, name in enumerate(TOTAL_KINDS)}
ENGINE_SOURCE: Final = "engine"
_HARDWARE_NAMES: Final = {pb.HARDWARE_SOURCE_DCGM: "dcgm", pb.HARDWARE_SOURCE_NVML: "nvml"}
# A later agent may use numbers that this build does not know: they say nothing here.
_ENGINE_STATES: Final = frozenset(pb.EngineState.values())
_HARDWARE_SOURCES: Final = frozenset(pb.HardwareSource.values())
_MAX_XID: Final = 1_000_000
_OUTAGE_S: Final = 2.0

Beat = pb.CellBeat | pb.MemberBeat


@dataclass(frozen=True, slots=True)
class HardwareWord:
    """What a node's beat says of its GPUs under a cell; `signals` as in CELL_SIGNALS, NaN = absent.
    `read_at` is NaN where no age was given."""

    signals: list[float]
    source: int
    read_at: float
    stale: bool


def read_hardware(beat: Beat, now: float) -> HardwareWord:
    """The figures of GPUs in a beat, without their health."""
    known = beat.hardware_source in _HARDWARE_SOURCES
    source = beat.hardware_source if known else pb.HARDWARE_SOURCE_UNSPECIFIED
    read_at, stale = _source(beat, _HARDWARE_NAMES.get(source), now)
    return HardwareWord(_values(beat.signals, _SIGNAL_AT), source, read_at, stale)


def read_xid(health: pb.HardwareHealth) -> int:
    """The last XID that a node's sources hold; 0 = none."""
    return min(health.last_xid, _MAX_XID) if health.HasField("last_xid") else 0


def outage_start(before: float, now: float) -> float:
    """From when on something that a beat of `now` tells can have happened; the one before it came at
    `before`. Between two beats of an outage anything may have happened at any time."""
    return before if now - before > _OUTAGE_S else now


def write_cell(columns: Columns, row: int, beat: pb.CellBeat, now: float) -> None:
    """Write one cell's beat; what it does not say becomes absent, except the engine's state and
    the hardware's health, where silence takes nothing back."""
    hardware = read_hardware(beat, now)
    totals = _values(beat.requests, _TOTAL_AT) if beat.HasField("requests") else None
    engine = beat.engine_state if beat.engine_state in _ENGINE_STATES else pb.ENGINE_STATE_UNSPECIFIED
    before, columns.telemetry_at[row] = float(columns.telemetry_at[row]), now
    columns.signals[row] = hardware.signals
    columns.in_flight[row] = beat.in_flight if beat.HasField("in_flight") else math.nan
    columns.hardware_source[row] = hardware.source
    columns.hardware_read_at[row], columns.hardware_stale[row] = hardware.read_at, hardware.stale
    columns.engine_read_at[row], columns.engine_stale[row] = _source(beat, ENGINE_SOURCE, now)
    if engine != pb.ENGINE_STATE_UNSPECIFIED:
        columns.engine_state[row] = engine
        columns.engine_at[row] = now
        columns.serving_ms[row] = beat.serving_ms
    if totals is not None:
        _write_totals(columns, row, totals)
    columns.health[row] = _values(beat.hardware, HEALTH_AT)
    if beat.HasField("hardware"):
        _write_health(columns, row, beat.hardware, outage_start(before, now))


def write_path(columns: Columns, rows: Ints, gateway: int, path: pb.PathBeat, now: float) -> None:
    """Write the path from a node to one gateway for all rows of the node."""
    rtt = _finite(path.rtt_ms) if path.HasField("rtt_ms") else math.nan
    columns.rtt_ms[rows, gateway] = rtt
    if not math.isnan(rtt):
        columns.last_rtt_ms[rows, gateway] = rtt
    columns.loss[rows, gateway] = _finite(path.loss) if path.HasField("loss") else math.nan
    columns.jitter_ms[rows, gateway] = _finite(path.jitter_ms) if path.HasField("jitter_ms") else math.nan
    age_ms = path.age_ms if path.HasField("age_ms") else 0
    columns.path_at[rows, gateway] = now - age_ms / 1000


def _values(message: pb.Signals | pb.RequestTotals | pb.HardwareHealth, places: dict[str, int]) -> list[float]:
    values = [math.nan] * len(places)
    for descriptor, value in message.ListFields():
        place = places.get(descriptor.name)
        if place is not None:
            values[place] = _finite(value)
    return values


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.nan


def _source(beat: Beat, name: str | None, now: float) -> tuple[float, bool]:
    """When a source was read, NaN where its age was not given, and whether it stands still."""
    for source in beat.sources:
        if source.name == name:
            read_at = now - source.age_ms / 1000 if source.HasField("age_ms") else math.nan
            return read_at, source.status == pb.SOURCE_STATUS_STALE
    return math.nan, False


def _write_totals(columns: Columns, row: int, values: list[float]) -> None:
    """Credit what was counted since the totals before.

    The first totals of an incarnation are only the base, because they may tell of requests from
    before this controller watched. After that a kind that had not been named yet started at 0.
    A figure that falls, which no honest agent sends, becomes the new base.
    """
    before: list[float] = columns.totals[row].tolist()
    if values == before:
        return
    if not all(map(math.isnan, before)):
        for kind, value in enumerate(values):
            if math.isnan(value):
                values[kind] = before[kind]
            elif value > (base := 0.0 if math.isnan(before[kind]) else before[kind]):
                columns.evidence[row, kind] += value - base
    columns.totals[row] = values


def _write_health(columns: Columns, row: int, health: pb.HardwareHealth, since: float) -> None:
    """Note a lost GPU, and an XID that differs from the one before, which can have happened from
    `since` on; the first report of a cell is only the base, because the sources keep the last XID
    for ever."""
    columns.gpu_lost[row] = health.gpu_lost
    xid = read_xid(health)
    if columns.last_xid[row] not in (-1, xid) and xid:
        if columns.new_xid[row]:
            return  # one at a time: the next beat names it again
        columns.new_xid[row], columns.xid_at[row] = xid, since
    if xid or columns.last_xid[row] == -1:
        columns.last_xid[row] = xid
