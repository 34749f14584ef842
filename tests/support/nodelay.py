"""Whether what is written to connections goes at once."""

from __future__ import annotations

import asyncio
import socket


async def goes_at_once(listener: socket.socket) -> bool:
    """Connect to a listening socket and look at its side of the connection, as asyncio serves it: what waits
    for the acknowledgement of what went before comes with the peer's next word, or up to 40 ms late."""
    loop = asyncio.get_running_loop()
    with socket.create_connection(listener.getsockname()):
        accepted, _ = await loop.sock_accept(listener)
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted)
        found = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        transport.close()
        await asyncio.sleep(0)
    return bool(found)
