"""Writes the figures of a telemetry beat into the arrays.

A beat is read whole before any of it is written, so that one that cannot be read leaves its row as
it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from headrace_controller.inventory.columns import HEALTH_AT, TOTAL_KINDS, Columns, Ints
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import CELL_SIGNALS

ENGINE_SOURCE: Final = "engine"
_HARDWARE_NAMES: Final = {pb.HARDWARE_SOURCE_DCGM: "dcgm", pb.HARDWARE_SOURCE_NVML: "nvml"}
# A later agent may use numbers that this build does not know: they say nothing here.
_ENGINE_STATES: Final = frozenset(pb.EngineState.values())
_HARDWARE_SOURCES: Final = frozenset(pb.HardwareSource.values())
_MAX_XID: Final = 1_000_000
_OUTAGE_S: Final = 2.0

Beat = pb.CellBeat | pb.MemberBeat


class _Fields:
    """Optional figures of a message, read in one go: `ListFields` costs as much as all the rest."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._get: Callable[[Any], tuple[float, ...]] = attrgetter(*self._names)

    def read(self, message: pb.Signals | pb.RequestTotals | pb.HardwareHealth) -> Sequence[float]:
        """The figures in the order of the names; NaN where one is absent or not finite."""
        values = self._get(message)
        if not math.isfinite(sum(values)):
            values = tuple(value if math.isfinite(value) else math.nan for value in values)
        zeros = values.count(0)
        return self._without_absent(message, values, zeros) if zeros else values

    def _without_absent(self, message: Any, values: Sequence[float], zeros: int) -> Sequence[float]:
        """Only a figure that reads as 0 may be an absent one."""
        found, at = list(values), -1
        for _ in range(zeros):
            at = values.index(0, at + 1)
            if not message.HasField(self._names[at]):
                found[at] = math.nan
        return found


_SIGNALS: Final = _Fields(CELL_SIGNALS)
_TOTALS: Final = _Fields(TOTAL_KINDS)
_HEALTH: Final = _Fields(tuple(HEALTH_AT))


@dataclass(frozen=True, slots=True)
class HardwareWord:
    """What a node's beat says of its GPUs under a cell; `signals` as in CELL_SIGNALS, NaN = absent.
    `read_at` is NaN where no age was given."""

    signals: Sequence[float]
    source: int
    read_at: float
    stale: bool


def read_hardware(beat: Beat, now: float) -> HardwareWord:
    """The figures of GPUs in a beat, without their health."""
    kind, read_at, stale, _, _ = _read(beat, now)
    return HardwareWord(_SIGNALS.read(beat.signals), kind, read_at, stale)


def read_xid(health: pb.HardwareHealth) -> int:
    """The last XID that a node's sources hold; 0 = none."""
    return min(health.last_xid, _MAX_XID) if health.HasField("last_xid") else 0


def outage_start(before: float, now: float) -> float:
    """From when on something that a beat of `now` tells can have happened; the one before it came at
    `before`. Between two beats of an outage anything may have happened at any time."""
    return before if now - before > _OUTAGE_S else now


def write_cell(columns: Columns, row: int, beat: pb.CellBeat, now: float) -> None:
    """Write one cell's beat; what it does not say becomes absent, except the engine's state, XIDs
    and lost GPUs, where silence takes nothing back."""
    hardware, read_at, stale, engine_read_at, engine_stale = _read(beat, now)
    signals = _SIGNALS.read(beat.signals)
    totals = _TOTALS.read(beat.requests) if beat.HasField("requests") else None
    engine = beat.engine_state if beat.engine_state in _ENGINE_STATES else pb.ENGINE_STATE_UNSPECIFIED
    before, columns.telemetry_at[row] = float(columns.telemetry_at[row]), now
    columns.signals[row] = signals
    columns.in_flight[row] = beat.in_flight if beat.HasField("in_flight") else math.nan
    columns.hardware_source[row] = hardware
    columns.hardware_read_at[row], columns.hardware_stale[row] = read_at, stale
    columns.engine_read_at[row], columns.engine_stale[row] = engine_read_at, engine_stale
    if engine != pb.ENGINE_STATE_UNSPECIFIED:
        columns.engine_state[row] = engine
        columns.engine_at[row] = now
        columns.serving_ms[row] = beat.serving_ms
    if totals is not None:
        _write_totals(columns, row, totals)
    columns.health[row] = _HEALTH.read(beat.hardware)
    if beat.HasField("hardware"):
        _write_health(columns, row, beat.hardware, outage_start(before, now))


def write_path(columns: Columns, rows: Ints | slice, gateway: int, path: pb.PathBeat, now: float) -> None:
    """Write the path from a node to one gateway for all rows of the node."""
    rtt = _finite(path.rtt_ms) if path.HasField("rtt_ms") else math.nan
    columns.rtt_ms[rows, gateway] = rtt
    if not math.isnan(rtt):
        columns.last_rtt_ms[rows, gateway] = rtt
    columns.loss[rows, gateway] = _finite(path.loss) if path.HasField("loss") else math.nan
    columns.jitter_ms[rows, gateway] = _finite(path.jitter_ms) if path.HasField("jitter_ms") else math.nan
    age_ms = path.age_ms if path.HasField("age_ms") else 0
    columns.path_at[rows, gateway] = now - age_ms / 1000


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.nan


def _read(beat: Beat, now: float) -> tuple[int, float, bool, float, bool]:
    """The source of the hardware's figures, when it was read (NaN where no age was given) and whether
    it stands still; and both of the engine's. Of two sources of one name the first counts."""
    known = beat.hardware_source in _HARDWARE_SOURCES
    kind = beat.hardware_source if known else pb.HARDWARE_SOURCE_UNSPECIFIED
    wanted, engine, hardware = _HARDWARE_NAMES.get(kind), None, None
    for source in beat.sources:
        name = source.name
        if name == ENGINE_SOURCE:
            engine = engine or _age(source, now)
        elif name == wanted:
            hardware = hardware or _age(source, now)
    return kind, *(hardware or _NEVER_READ), *(engine or _NEVER_READ)


_NEVER_READ: Final = (math.nan, False)


def _age(source: pb.SourceBeat, now: float) -> tuple[float, bool]:
    read_at = now - source.age_ms / 1000 if source.HasField("age_ms") else math.nan
    return read_at, source.status == pb.SOURCE_STATUS_STALE


def _write_totals(columns: Columns, row: int, values: Sequence[float]) -> None:
    """Credit what was counted since the totals before.

    The first totals of an incarnation are only the base, because they may tell of requests from
    before this controller watched. After that a kind that had not been named yet started at 0.
    A figure that falls, which no honest agent sends, becomes the new base.
    """
    before: list[float] = columns.totals[row].tolist()
    first = all(map(math.isnan, before))
    for kind, (base, value) in enumerate(zip(before, values, strict=True)):
        if value == base or value != value:  # absent: what was told before stands
            continue
        columns.totals[row, kind] = value
        gained = value - (0.0 if base != base else base)
        if gained > 0 and not first:
            columns.evidence[row, kind] += gained


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
