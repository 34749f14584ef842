"""Sockets that listen on an address as people write it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final

from headrace_shared.net import HostPort

BACKLOG: Final = 1024
_WILDCARDS: Final = ("0.0.0.0", "::")


async def listen(address: HostPort) -> list[socket.socket]:
    """Sockets on every address that a name has; a wildcard of either family is both. Raises OSError."""
    if address.host in _WILDCARDS:
        with contextlib.suppress(OSError):
            return [_bind(socket.AF_INET6, ("::", address.port), dual=True)]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, where in dict.fromkeys(found):
            port = sockets[0].getsockname()[1] if sockets else address.port
            sockets.append(_bind(family, (where[0], port, *where[2:]), dual=False))
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def _bind(family: int, where: tuple[object, ...], dual: bool) -> socket.socket:
    # asyncio lets small answers go at once (TCP_NODELAY) only where a socket says that it is of TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # A port whose last connections still linger is free; one that another socket listens on is not.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        listener.bind(where)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
