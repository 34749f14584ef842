"""When a packet arrives, if it does. Pure: `now` comes in, and the draws from a seeded generator."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headrace_lab.wan.settings import Path

_V4, _V6 = 4, 6
_V4_HEADER: Final = 20
_V6_HEADER: Final = 40


class Direction(Enum):
    """Which way a packet goes."""

    THERE = "to the far end"
    BACK = "to the near end"


def far_address(packet: bytes, direction: Direction) -> str | None:
    """The address of the far end in an IP packet; None where it is no IP packet."""
    version = packet[0] >> 4 if packet else 0
    there = direction is Direction.THERE
    if version == _V4 and len(packet) >= _V4_HEADER:
        return str(ipaddress.IPv4Address(packet[16:20] if there else packet[12:16]))
    if version == _V6 and len(packet) >= _V6_HEADER:
        return str(ipaddress.IPv6Address(packet[24:40] if there else packet[8:24]))
    return None


@dataclass
class Counts:
    """What became of the packets; `late_s` sums by how much deliveries missed their moment."""

    delivered: int = 0
    lost: int = 0
    overflowed: int = 0
    failed: int = 0
    late_s: float = 0.0

    @property
    def mean_late_ms(self) -> float:
        """By how much the emulator itself delays a packet, on average."""
        return 1000 * self.late_s / self.delivered if self.delivered else 0.0


class Delays:
    """Decides each packet's moment of arrival."""

    def __init__(self, paths: Mapping[str, Path], default: Path, seed: int) -> None:
        self._random = random.Random(seed)
        self._arrived: dict[tuple[str, Direction], float] = {}
        self.set_paths(paths, default)

    def set_paths(self, paths: Mapping[str, Path], default: Path) -> None:
        """Treat packets by these from now on; those under way are not touched."""
        self._paths, self._default = dict(paths), default

    def due(self, packet: bytes, direction: Direction, now: float) -> float | None:
        """When a packet that was sent at `now` arrives, in seconds of the same clock; None: never."""
        address = far_address(packet, direction)
        if address is None:
            return None
        path = self._paths.get(address)
        # Addresses that nobody named share one order, so that what is kept stays bounded.
        key = ("" if path is None else address, direction)
        path = path if path is not None else self._default
        if path.down or (path.loss and self._random.random() < path.loss):
            return None
        due = now + self._delay_ms(path) / 1000
        if path.in_order:
            due = self._arrived[key] = max(due, self._arrived.get(key, due))
        return due

    def _delay_ms(self, path: Path) -> float:
        if not path.jitter_ms:
            return path.delay_ms
        if path.shape == "uniform":
            return path.delay_ms + self._random.uniform(-path.jitter_ms, path.jitter_ms)
        return max(0.0, self._random.gauss(path.delay_ms, path.jitter_ms))
