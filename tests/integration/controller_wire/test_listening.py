"""What connections to the controller's ports are like."""

from __future__ import annotations

import asyncio
import socket

from headrace_controller.wire.listening import listen
from headrace_shared.net import HostPort


async def test_small_answers_go_at_once() -> None:
    """One that waits for the acknowledgement of the one before would come with the peer's next word, or after
    the 40 ms by which acknowledgements are put off."""
    loop = asyncio.get_running_loop()
    (listener,) = await listen(HostPort("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()):
        accepted, _ = await loop.sock_accept(listener)
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted)
        served = transport.get_extra_info("socket")
        assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        transport.close()
        await asyncio.sleep(0)
