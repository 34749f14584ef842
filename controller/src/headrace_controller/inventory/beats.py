"""Writes the figures of a telemetry beat into the arrays.

A beat is read whole before any of it is written, so that one that cannot be read leaves its rows as
they were. The cells of one node stand in rows that follow on each other, and each column takes the
figures of all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

from headrace_controller.ingest.reading import (
    ENGINE_AGE_MS,
    HARDWARE_AGE_MS,
    HEALTH_AT,
    IN_FLIGHT,
    SERVING_MS,
    SIGNALS_AT,
    TOTAL_KINDS,
    WORK,
    Reading,
)
from headrace_controller.inventory.columns import Columns, Ints
from headrace_pb.v1 import telemetry_pb2 as pb

_OUTAGE_S: Final = 2.0


def outage_start(before: float, now: float) -> float:
    """From when on something that a beat of `now` tells can have happened; the one before it came at
    `before`. Between two beats of an outage anything may have happened at any time."""
    return before if now - before > _OUTAGE_S else now


def write_cells(
    columns: Columns, rows: Ints | slice, listed: Sequence[int], reading: Reading, now: float
) -> None:
    """Write the beats of different cells into `rows`, which are `listed` once more; what a beat does not
    say becomes absent, except the engine's state, XIDs and lost GPUs, where silence takes nothing back."""
    _write_totals(columns, rows, listed, reading)
    _write_faults(columns, rows, listed, reading, now)
    block = reading.block
    columns.telemetry_at[rows] = now
    columns.signals[rows] = block[:, SIGNALS_AT]
    columns.health[rows] = block[:, HEALTH_AT]
    columns.in_flight[rows], columns.work_tokens[rows] = block[:, IN_FLIGHT], block[:, WORK]
    columns.hardware_source[rows] = reading.hardware
    read_at = now - block[:, ENGINE_AGE_MS : HARDWARE_AGE_MS + 1] / 1000
    columns.engine_read_at[rows], columns.hardware_read_at[rows] = read_at[:, 0], read_at[:, 1]
    columns.engine_stale[rows], columns.hardware_stale[rows] = reading.engine_stale, reading.hardware_stale
    if pb.ENGINE_STATE_UNSPECIFIED not in reading.engine:
        columns.engine_state[rows], columns.engine_at[rows] = reading.engine, now
        columns.serving_ms[rows] = block[:, SERVING_MS]
        return
    for at, row in enumerate(listed):
        if reading.engine[at] != pb.ENGINE_STATE_UNSPECIFIED:
            columns.engine_state[row], columns.engine_at[row] = reading.engine[at], now
            columns.serving_ms[row] = block[at, SERVING_MS]


def write_path(columns: Columns, rows: Ints | slice, gateway: int, path: pb.PathBeat, now: float) -> None:
    """Write the path from a node to one gateway for all rows of the node."""
    rtt = _measured(path.rtt_ms, path, "rtt_ms")
    columns.rtt_ms[rows, gateway] = rtt
    if rtt == rtt:
        columns.last_rtt_ms[rows, gateway] = rtt
    columns.loss[rows, gateway] = _measured(path.loss, path, "loss")
    columns.jitter_ms[rows, gateway] = _measured(path.jitter_ms, path, "jitter_ms")
    # An age that is absent reads as 0.
    columns.path_at[rows, gateway] = now - path.age_ms / 1000


def _measured(value: float, path: pb.PathBeat, name: Literal["rtt_ms", "jitter_ms", "loss"]) -> float:
    """The figure; NaN where it is absent, which reads as 0, or not finite."""
    if value:
        return value if math.isfinite(value) else math.nan
    return value if path.HasField(name) else math.nan


def _write_totals(columns: Columns, rows: Ints | slice, listed: Sequence[int], reading: Reading) -> None:
    """Credit what was counted since the totals before.

    The first totals of an incarnation are only the base, because they may tell of requests from
    before this controller watched. After that a kind that had not been named yet started at 0.
    A figure that falls, which no honest agent sends, becomes the new base.
    """
    before: list[list[float]] = columns.totals[rows].tolist()
    for row, bases, values, requests in zip(listed, before, reading.totals, reading.requests, strict=True):
        first = -1
        for kind, value in enumerate(values):
            base = bases[kind]
            # What is absent, which reads as 0, leaves standing what was told before.
            if value == base or not (value or requests.HasField(TOTAL_KINDS[kind])):
                continue
            columns.totals[row, kind] = value
            if first < 0:
                first = all(map(math.isnan, bases))
            gained = value - (0.0 if base != base else base)
            if gained > 0 and not first:
                columns.evidence[row, kind] += gained


def _write_faults(
    columns: Columns, rows: Ints | slice, listed: Sequence[int], reading: Reading, now: float
) -> None:
    """Note lost GPUs, and XIDs that differ from the ones before; the first report of a cell is only the
    base, because the sources keep the last XID for ever."""
    lost: list[bool] = columns.gpu_lost[rows].tolist()
    last: list[int] = columns.last_xid[rows].tolist()
    if reading.lost == lost and reading.xids == last:
        return
    for at, row in enumerate(listed):
        if not reading.told[at]:
            continue
        columns.gpu_lost[row] = reading.lost[at]
        if reading.xids[at] != last[at]:
            _note_xid(columns, row, reading.xids[at], now)


def _note_xid(columns: Columns, row: int, xid: int, now: float) -> None:
    """Note an XID other than the last one, which can have happened since the beat before."""
    known = columns.last_xid[row] != -1
    if known and xid:
        if columns.new_xid[row]:
            return  # one at a time: the next beat names it again
        columns.new_xid[row] = xid
        columns.xid_at[row] = outage_start(float(columns.telemetry_at[row]), now)
    if xid or not known:
        columns.last_xid[row] = xid
