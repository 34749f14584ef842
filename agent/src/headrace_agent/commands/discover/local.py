"""What this host says of itself: its sockets, processes, name and address. Blocking, some of it for long."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace_agent.collectors.app.processes.listing import PROC, Listing, read_command_line, read_listing

_RANGE: Final = "sys/net/ipv4/ip_local_port_range"
_DEFAULT_RANGE: Final = (32768, 60999)
MAX_ENVIRON: Final = 1024 * 1024
# Addresses kept for documentation: a route to them is the default one, and nothing is sent.
_FAR: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


@dataclass(frozen=True, slots=True)
class Local:
    """One look at /proc; `ephemeral` is the range of ports that the kernel itself chooses from."""

    listing: Listing
    ephemeral: tuple[int, int]
    proc: Path = PROC

    def command_line(self, pid: int) -> tuple[str, ...]:
        """A process's arguments; empty where they are not to be seen."""
        return read_command_line(pid, self.proc)

    def environ(self, pid: int) -> Mapping[str, str]:
        """A process's environment at its start; empty where it is not to be seen."""
        try:
            with (self.proc / str(pid) / "environ").open("rb") as file:
                text = file.read(MAX_ENVIRON)
        except OSError:
            return {}
        pairs = (each.decode("utf-8", "replace").partition("=") for each in text.split(b"\0"))
        return {name: value for name, _, value in pairs if name}


def look(proc: Path = PROC) -> Local:
    """This host, now."""
    return Local(read_listing(proc), _ephemeral(proc), proc)


def _ephemeral(proc: Path) -> tuple[int, int]:
    try:
        first, last = (proc / _RANGE).read_text("ascii").split()
        return int(first), int(last)
    except (OSError, ValueError):
        return _DEFAULT_RANGE


def own_address() -> str:
    """The address that this host speaks from to the outer world, IPv4 before IPv6; "" without any."""
    for family, far in _FAR:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect((far, 9))
                return str(sock.getsockname()[0])
        except OSError:
            continue
    return ""


def host_name() -> str:
    """The host's own name."""
    return socket.gethostname() or os.uname().nodename
