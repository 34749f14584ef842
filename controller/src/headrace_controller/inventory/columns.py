"""The arrays: one row a cell, growing by doubling, rows reused after removal.

A row that is not in use has state 0 and generation 0. `generation` is different for every
registration, so that stages which keep arrays of their own can tell a reused row from the cell
that had it before.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.ingest import reading
from headrace_shared.signals import CELL_SIGNALS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Small = NDArray[np.int8]
Flags = NDArray[np.bool_]

NEVER: Final = -np.inf
FIRST_CAPACITY: Final = 16
TOTAL_KINDS: Final = reading.TOTAL_KINDS
HEALTH_KINDS: Final = reading.HEALTH_KINDS
HEALTH_AT: Final = {name: number for number, name in enumerate(HEALTH_KINDS)}


@dataclass(frozen=True, slots=True)
class _Column:
    dtype: Any
    fill: Any
    width: int = 0  # 0: one-dimensional; -1: one column a gateway


_COLUMNS: Final[dict[str, _Column]] = {
    "generation": _Column(np.int64, 0),
    "state": _Column(np.int8, 0),
    "state_since": _Column(np.float64, NEVER),
    "ready_since": _Column(np.float64, np.nan),
    "hold_down_until": _Column(np.float64, NEVER),
    "hold_until": _Column(np.float64, NEVER),
    "drain_deadline": _Column(np.float64, np.inf),
    "held": _Column(np.bool_, False),
    "telemetry_lost": _Column(np.bool_, False),
    "needs_restart": _Column(np.bool_, False),
    "asleep": _Column(np.bool_, False),
    "drained": _Column(np.bool_, False),
    "doubted": _Column(np.bool_, False),
    "last_heard": _Column(np.float64, NEVER),
    "telemetry_at": _Column(np.float64, NEVER),
    "engine_state": _Column(np.int8, 0),
    "engine_at": _Column(np.float64, NEVER),
    "serving_ms": _Column(np.float64, 0.0),
    "in_flight": _Column(np.float64, np.nan),
    "work_tokens": _Column(np.float64, np.nan),
    "signals": _Column(np.float64, np.nan, len(CELL_SIGNALS)),
    "engine_read_at": _Column(np.float64, np.nan),
    "hardware_read_at": _Column(np.float64, np.nan),
    "engine_stale": _Column(np.bool_, False),
    "hardware_stale": _Column(np.bool_, False),
    "hardware_source": _Column(np.int8, 0),
    "totals": _Column(np.float64, np.nan, len(TOTAL_KINDS)),
    "evidence": _Column(np.float64, 0.0, len(TOTAL_KINDS)),
    "gateway_evidence": _Column(np.float64, 0.0, len(TOTAL_KINDS)),
    "gateway_told_at": _Column(np.float64, NEVER),
    "gateway_alive_at": _Column(np.float64, NEVER),
    "gateway_refused": _Column(np.int64, 0),
    "gateway_refused_at": _Column(np.float64, NEVER),
    "unanswered": _Column(np.int64, 0, -1),
    "unanswered_at": _Column(np.float64, NEVER, -1),
    "health": _Column(np.float64, np.nan, len(HEALTH_KINDS)),
    "last_xid": _Column(np.int64, -1),
    "new_xid": _Column(np.int64, 0),
    "xid_at": _Column(np.float64, NEVER),
    "gpu_lost": _Column(np.bool_, False),
    "member_lost": _Column(np.bool_, False),
    "hardware_partial": _Column(np.bool_, False),
    "rtt_ms": _Column(np.float64, np.nan, -1),
    "jitter_ms": _Column(np.float64, np.nan, -1),
    "loss": _Column(np.float64, np.nan, -1),
    "path_at": _Column(np.float64, np.nan, -1),
    "last_rtt_ms": _Column(np.float64, np.nan, -1),
}


class Columns:
    """The arrays of a fleet; use rows 0 … `size` − 1.

    Times are seconds on the controller's monotonic clock; −inf = never. Which stage writes what:
    the lifecycle writes `state` to `doubted` (see `lifecycle.book`), messages write the rest.
    """

    generation: Ints
    state: Small
    """CellState number; 0 = row not in use, or not yet given a life."""
    state_since: Floats
    ready_since: Floats
    """Where the ramp starts; NaN unless READY."""
    hold_down_until: Floats
    hold_until: Floats
    """Until when a planned goodbye holds the weight."""
    drain_deadline: Floats
    held: Flags
    telemetry_lost: Flags
    needs_restart: Flags
    """Failed by its hardware: only a restarted engine brings it back."""
    asleep: Flags
    """Draining or drained because the engine sleeps."""
    drained: Flags
    """Draining or drained because somebody asked for it."""
    doubted: Flags
    """Said to hang, among too many at once."""
    last_heard: Floats
    telemetry_at: Floats
    engine_state: Small
    """EngineState of the wire; 0 = the present agent has not said."""
    engine_at: Floats
    """When `engine_state` was said last."""
    serving_ms: Floats
    in_flight: Floats
    work_tokens: Floats
    """Tokens that the engine has computed since its start; NaN where it, or the activity of the tensor
    pipes that they took, is not told."""
    signals: Floats
    """(n, 8) in the order of CELL_SIGNALS, raw units, NaN = absent."""
    engine_read_at: Floats
    hardware_read_at: Floats
    engine_stale: Flags
    hardware_stale: Flags
    hardware_source: Small
    totals: Floats
    """(n, 4) request totals as last reported, in the order of TOTAL_KINDS; NaN = absent."""
    evidence: Floats
    """(n, 4) requests counted while this controller watched; never falls within a generation."""
    gateway_evidence: Floats
    """(n, 4) requests as gateways saw them, like `evidence`; parts of requests where a client's own part
    in a refusal is left out."""
    gateway_told_at: Floats
    """When a gateway last told of a request to the cell."""
    gateway_alive_at: Floats
    """The latest moment at which an answer that a gateway had from the cell is known to have come."""
    gateway_refused: Ints
    """Connections in a row that gateways were refused, since an answer."""
    gateway_refused_at: Floats
    unanswered: Ints
    """(n, G) tries of each gateway in a row that were refused, or broke off, since an answer."""
    unanswered_at: Floats
    health: Floats
    """(n, 6) what the head's sources say of its GPUs' health, in the order of HEALTH_KINDS; NaN =
    absent. Counters are since boot."""
    last_xid: Ints
    """The last XID reported; 0 = none, -1 = nothing reported yet."""
    new_xid: Ints
    """A newly seen XID that the lifecycle has not looked at yet; 0 = none."""
    xid_at: Floats
    """The earliest moment at which `new_xid` can have happened."""
    gpu_lost: Flags
    member_lost: Flags
    """Some node that the cell's head names as a member does not report."""
    hardware_partial: Flags
    """Some of the nodes that report have no figures of their GPUs, others have."""
    rtt_ms: Floats
    jitter_ms: Floats
    loss: Floats
    """Share of the last echoes that were lost, 0 to 1; 1 = nothing comes back over this path."""
    path_at: Floats
    """(n, G) when the path was measured; also the shape of the other figures of a path."""
    last_rtt_ms: Floats
    """The last round trip that was known, however long ago, also by a controller before this one:
    how far the node is, not how its path does."""

    def __init__(self, gateways: int) -> None:
        self._gateways = gateways
        self._free: list[int] = []
        self._next_generation = 1
        self.rows_version = 1
        """Rises whenever a row is taken or freed."""
        self.gateway_version = 0
        """Rises whenever gateways have told something of any cell."""
        self.size = 0
        self.capacity = FIRST_CAPACITY
        for name in _COLUMNS:
            setattr(self, name, self._blank(name, FIRST_CAPACITY))

    def take_row(self) -> int:
        """A blank row with a generation of its own; the lowest free one."""
        if self._free:
            row = heapq.heappop(self._free)
        else:
            if self.size == self.capacity:
                self._grow()
            row = self.size
            self.size += 1
        self.rows_version += 1
        self.generation[row] = self._next_generation
        self._next_generation += 1
        return row

    def free_row(self, row: int) -> None:
        """Blank a row and keep it for reuse."""
        self.rows_version += 1
        for name, column in _COLUMNS.items():
            getattr(self, name)[row] = column.fill
        heapq.heappush(self._free, row)

    def _grow(self) -> None:
        for name in _COLUMNS:
            old = getattr(self, name)
            new = self._blank(name, self.capacity * 2)
            new[: self.capacity] = old
            setattr(self, name, new)
        self.capacity *= 2

    def _blank(self, name: str, rows: int) -> NDArray[Any]:
        column = _COLUMNS[name]
        width = self._gateways if column.width == -1 else column.width
        shape = (rows, width) if column.width else (rows,)
        return np.full(shape, column.fill, dtype=column.dtype)
