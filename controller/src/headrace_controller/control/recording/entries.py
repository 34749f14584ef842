"""The recording's format: what an entry is, and how it stands in a file.

A file is a gzip stream of frames: kind (1 byte), time (8 bytes, seconds on the controller's monotonic
clock), length (4 bytes), and that many bytes of payload; all little-endian. Every file begins with OPEN
and can be read without the ones before it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

VERSION: Final = 1
FRAME: Final = struct.Struct("<BdI")
MAX_PAYLOAD: Final = 64 * 1024 * 1024
_PUSH: Final = struct.Struct("<III")


class Kind(IntEnum):
    """The numbers are in files: they never change."""

    OPEN = 1
    """JSON: `version`, `run` (differs from start to start), `region`, `wall_ns`, `gateways` and
    `settings`."""
    HELLO = 2
    """A Hello as it was taken (protobuf)."""
    BEAT = 3
    """A node's name, a zero byte, its Telemetry (protobuf)."""
    LIFE = 4
    """JSON: a cell's life, as far as weights depend on it, and what changed it."""
    GONE = 5
    """A cell's id: it is forgotten."""
    TICK = 6
    """A tick has scored. JSON: `reason` of a push, "" = none."""
    PUSH = 7
    """What gateways hold after the TICK before it: see `Push`."""
    INTENTS = 8
    """JSON: what operators ask of the weights."""
    CELL = 9
    """JSON: LIFE, and what a cell's pressure depends on besides its figures; only after OPEN."""
    READY = 10
    """All that was known at OPEN is told. A PUSH comes before it."""
    EVIDENCE = 12
    """What gateways reported of some cells up to the TICK after it: see `Evidence`."""
    MODELS = 11
    """JSON: the models of the pools by number, for the PUSHes that follow."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One frame; `at` on the recording controller's monotonic clock, s."""

    kind: Kind
    at: float
    payload: bytes


@dataclass(frozen=True, slots=True)
class Push:
    """m memberships: rows and numbers of pools (m,), weights (G, m)."""

    row: NDArray[np.int32]
    pool: NDArray[np.int32]
    weights: NDArray[np.int32]

    def pack(self) -> bytes:
        """As a payload."""
        gateways, members = self.weights.shape
        arrays = (self.row, self.pool, self.weights)
        return _PUSH.pack(gateways, members, 0) + b"".join(each.astype("<i4").tobytes() for each in arrays)

    @classmethod
    def unpack(cls, payload: bytes) -> Push:
        """From a payload. Raises ValueError."""
        if len(payload) < _PUSH.size:
            raise ValueError("a push is cut short")
        gateways, members, _ = _PUSH.unpack_from(payload)
        if len(payload) != _PUSH.size + 4 * members * (2 + gateways):
            raise ValueError("a push has another length than it says")
        values = np.frombuffer(payload, dtype="<i4", offset=_PUSH.size).astype(np.int32)
        row, pool, weights = np.split(values, [members, 2 * members])
        return cls(row, pool, weights.reshape(gateways, members))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Rows (m,), what gateways counted of each by kind (m, kinds), and when they last told (m,)."""

    row: NDArray[np.int64]
    counts: NDArray[np.float64]
    told_at: NDArray[np.float64]

    def pack(self) -> bytes:
        """As a payload."""
        table = np.column_stack((self.row.astype(np.float64), self.told_at, self.counts))
        return table.astype("<f8").tobytes()

    @classmethod
    def unpack(cls, payload: bytes, kinds: int) -> Evidence:
        """From a payload. Raises ValueError."""
        table = np.frombuffer(payload, dtype="<f8").reshape(-1, 2 + kinds).astype(np.float64)
        return cls(table[:, 0].astype(np.int64), table[:, 2:], table[:, 1])


class RecordingError(Exception):
    """A file that is no recording, or one that cannot be used; the message says why."""


def read_entries(file: BinaryIO) -> Iterator[Entry]:
    """The entries of one unpacked file. A file that ends within a frame was being written when its
    controller ended: what is whole counts. Raises RecordingError for bytes that are no frame."""
    while len(head := file.read(FRAME.size)) == FRAME.size:
        number, at, length = FRAME.unpack(head)
        if number not in _KNOWN or length > MAX_PAYLOAD or not np.isfinite(at):
            raise RecordingError(
                f"entry of kind {number} with {length} bytes: this is no recording, or damaged"
            )
        payload = file.read(length)
        if len(payload) < length:
            return
        yield Entry(Kind(number), at, payload)


_KNOWN: Final = frozenset(int(kind) for kind in Kind)
