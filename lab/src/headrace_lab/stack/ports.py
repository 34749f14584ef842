"""Ports for the programs, chosen before any of them starts, because they name each other."""

from __future__ import annotations

import os
import random
import socket
from collections import deque
from pathlib import Path
from typing import Final

LOWEST = 10240
RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Ports that this process chose last: others do not choose them while it lives, for their programs may
# start much later.
KEPT: Final = 256
_kept: deque[int] = deque()


class NoFreePortError(Exception):
    """No port could be bound on this machine's loopback."""


def ephemeral_floor(text: str) -> int:
    """The first port that the system hands to outgoing connections; Linux's default if unreadable."""
    first = text.split()[0] if text.split() else ""
    return int(first) if first.isascii() and first.isdigit() else 32768


def free_ports(count: int, host: str = "127.0.0.1", rng: random.Random | None = None) -> list[int]:
    """Choose `count` distinct ports that can be bound now. Raises NoFreePortError.

    They lie below the range of outgoing connections where there is room: a port chosen there
    could be taken by a connection before its program starts, and a client that polls a loopback
    port inside that range may connect to itself. Other processes that choose ports in this way do not
    choose them for as long as this one lives, or until it has chosen `KEPT` more.
    """
    rng = rng or random.Random()  # noqa: S311
    try:
        ceiling = ephemeral_floor(RANGE_FILE.read_text(encoding="ascii"))
    except OSError:
        ceiling = 32768
    chosen: list[int] = []
    for _ in range(count * 50):
        if len(chosen) == count:
            return chosen
        wanted = rng.randrange(LOWEST, ceiling) if ceiling > LOWEST + 1000 else 0
        port = bindable(host, wanted)
        if port and port not in chosen and reserve(port):
            chosen.append(port)
    if len(chosen) == count:
        return chosen
    raise NoFreePortError(f"found only {len(chosen)} of {count} free ports on {host}; is this machine full?")


def bindable(host: str, port: int) -> int:
    """The port that a bind to `port` (0 = any) gets, or 0 where it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return 0
        return int(probe.getsockname()[1])


def reserve(port: int) -> bool:
    """Whether nobody has chosen this port, who now has. Where the system has no names for that, every
    port is free."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0headrace-port-{port}")
    except OSError:
        claim.close()
        return not RANGE_FILE.exists()
    _kept.append(claim.detach())
    if len(_kept) > KEPT:
        os.close(_kept.popleft())
    return True
