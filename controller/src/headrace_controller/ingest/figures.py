"""Checks on the figures of a telemetry beat.

They run where a reading says that something is not in order, to find what it is, and for the beats of
members. Counters need no bound: every number that the wire can carry is one that the arrays can hold.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from operator import attrgetter, le
from typing import Final

from headrace_controller.ingest.validation import FRACTION_LIMIT, MAX_CELLS, MAX_SOURCES, Rejection
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import CELL_SIGNALS, GPU_SIGNALS, SIGNALS

_LIMITS: Final = {each.name: FRACTION_LIMIT for each in SIGNALS if each.unit == "fraction"}
_SIGNAL_LIMITS: Final = tuple(_LIMITS.get(name, sys.float_info.max) for name in CELL_SIGNALS)
_HEALTH: Final = ("temperature_c", "thermal_margin_c", "power_w", "power_limit_w")
_signals_of: Callable[[pb.Signals], tuple[float, ...]] = attrgetter(*CELL_SIGNALS)
_health_of: Callable[[pb.HardwareHealth], tuple[float, ...]] = attrgetter(*_HEALTH)

Beat = pb.CellBeat | pb.MemberBeat


def check_telemetry(telemetry: pb.Telemetry) -> Rejection | None:
    """Check every figure of a telemetry beat: finite, not negative, in its unit."""
    cells, members, paths = telemetry.cells, telemetry.members, telemetry.paths
    most = max(len(cells), len(paths), len(members))
    if most > MAX_CELLS:
        return Rejection(
            "too_many_cells", f"{most} cells, members or paths in one beat, more than {MAX_CELLS}"
        )
    for cell in cells:
        rejection = _check_beat(cell)
        if rejection is not None:
            return rejection
    for path in paths:
        if not (0 <= path.rtt_ms < math.inf and 0 <= path.jitter_ms < math.inf):
            return Rejection(
                "bad_number", f"path to {path.gateway[:80]!r}: a figure is negative or not finite"
            )
        if not 0 <= path.loss <= FRACTION_LIMIT:
            return Rejection(
                "bad_unit", f"path to {path.gateway[:80]!r}: loss is {path.loss}; it is a fraction of 1"
            )
    twice = _twice([cell.cell_id for cell in cells])
    if twice is not None:
        return Rejection("cell_twice", f"cell {twice[:80]!r} stands twice in one beat")
    return _check_members(members) if members else None


def _check_beat(beat: Beat) -> Rejection | None:
    """What a cell's and a member's beat have in common."""
    values = _signals_of(beat.signals)
    # NaN fails the first comparison, so the least of the values is one.
    if not all(map(le, values, _SIGNAL_LIMITS)) or min(values) < 0:
        return _bad_signal(beat, values)
    health = _health_of(beat.hardware)
    if not all(map(math.isfinite, health)):
        return _bad_health(beat, health)
    if len(beat.sources) > MAX_SOURCES:
        return Rejection(
            "too_long", f"cell {beat.cell_id[:80]}: {len(beat.sources)} sources, more than {MAX_SOURCES}"
        )
    return None


def _bad_signal(beat: Beat, values: Sequence[float]) -> Rejection:
    """Which signal is wrong, and how; one of them is."""
    for name, value, limit in zip(CELL_SIGNALS, values, _SIGNAL_LIMITS, strict=True):
        if 0 <= value <= limit:
            continue
        where = f"cell {beat.cell_id[:80]}: {name} is {value}"
        if math.isfinite(value) and value > 0 and name in _LIMITS:
            return Rejection("bad_unit", f"{where}; it is a fraction of 1")
        return Rejection("bad_number", f"{where}; leave out what is unknown")
    raise AssertionError("a signal was out of its bounds")


def _bad_health(beat: Beat, values: Sequence[float]) -> Rejection:
    """Which figure of the hardware's health is wrong."""
    name, value = next(each for each in zip(_HEALTH, values, strict=True) if not math.isfinite(each[1]))
    return Rejection("bad_number", f"cell {beat.cell_id[:80]}: {name} is {value}; leave out what is unknown")


def _twice(ids: Sequence[str]) -> str | None:
    """An id that stands there more than once."""
    if len(set(ids)) == len(ids):
        return None
    seen: set[str] = set()
    return next(each for each in ids if each in seen or seen.add(each))  # type: ignore[func-returns-value]


def _check_members(members: Sequence[pb.MemberBeat]) -> Rejection | None:
    """A member beat is of GPUs alone, and one a cell: two would be one figure told twice."""
    seen: set[str] = set()
    for member in members:
        rejection = _check_beat(member)
        if rejection is not None:
            return rejection
        if member.cell_id in seen:
            return Rejection("cell_twice", f"member of cell {member.cell_id[:80]!r} stands twice in one beat")
        seen.add(member.cell_id)
        for field, _ in member.signals.ListFields():
            if field.name not in GPU_SIGNALS:
                return Rejection(
                    "foreign_signal",
                    f"member of cell {member.cell_id[:80]!r}: {field.name} is for the node of the engine to "
                    "tell; a member tells of its GPUs only",
                )
    return None
