"""Whether this process may send ICMP echoes, and what to do where it may not."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from icmplib import ICMPSocketError, ICMPv4Socket, ICMPv6Socket, SocketPermissionError

# The kernel's ping sockets of both IP versions go by this one setting.
RANGE: Final = Path("/proc/sys/net/ipv4/ping_group_range")
NOT_ALLOWED: Final = (
    "ICMP is not allowed here; give the agent CAP_NET_RAW, or add its group to net.ipv4.ping_group_range"
)


@dataclass(frozen=True, slots=True)
class IcmpRight:
    """What one IP version allows: `way` is raw (CAP_NET_RAW), ping (the kernel's ping sockets) or
    empty; then `why` and `remedy` are for people."""

    way: Literal["raw", "ping", ""]
    why: str = ""
    remedy: str = ""


def find_right(version: Literal[4, 6] = 4) -> IcmpRight:
    """Try to open the sockets that echoes would be sent by; nothing is sent."""
    kind = ICMPv6Socket if version == 6 else ICMPv4Socket
    for privileged in (True, False):
        try:
            kind(privileged=privileged).close()
        except SocketPermissionError:
            continue
        except ICMPSocketError as error:
            return IcmpRight("", f"no ICMPv{version} socket can be opened: {error}", "")
        return IcmpRight("raw" if privileged else "ping")
    return explain(_read_range(), {os.getegid(), *os.getgroups()}, os.getegid())


def explain(allowed: tuple[int, int] | None, groups: Iterable[int], own: int) -> IcmpRight:
    """Why there is no right: `allowed` is the range of groups that may ping, both ends included."""
    remedy = (
        "give the agent CAP_NET_RAW (systemd: AmbientCapabilities=CAP_NET_RAW; containers: add NET_RAW), "
        f'or allow its group: sysctl -w net.ipv4.ping_group_range="{own} {own}"'
    )
    if allowed is None:
        held = "net.ipv4.ping_group_range cannot be read"
    elif allowed[0] > allowed[1]:
        held = "net.ipv4.ping_group_range allows no group"
    elif any(allowed[0] <= group <= allowed[1] for group in groups):
        held = "the kernel refuses a ping socket although net.ipv4.ping_group_range holds its group"
        remedy = "look for what restricts it: a seccomp or systemd filter, or the container's runtime"
    else:
        held = f"its groups are not in net.ipv4.ping_group_range ({allowed[0]} to {allowed[1]})"
    return IcmpRight("", f"the agent has no CAP_NET_RAW, and {held}", remedy)


def _read_range() -> tuple[int, int] | None:
    try:
        first, last = RANGE.read_text("ascii").split()
        return int(first), int(last)
    except (OSError, ValueError):
        return None
