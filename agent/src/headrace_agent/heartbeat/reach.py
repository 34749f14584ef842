"""Whether a controller can be reached, found out without a call."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc

_DECIDED: Final = frozenset(
    (
        grpc.ChannelConnectivity.READY,
        grpc.ChannelConnectivity.TRANSIENT_FAILURE,
        grpc.ChannelConnectivity.SHUTDOWN,
    )
)


async def reached(channel: grpc.aio.Channel, timeout_s: float) -> bool:
    """Connect `channel`; False where that fails, or takes longer than `timeout_s`.

    A stream that fails to start costs gRPC some hundred bytes that it never gives back: an agent
    that called a dead controller every second or two would grow by 17 MiB a day.
    """
    state = channel.get_state(try_to_connect=True)
    try:
        async with asyncio.timeout(timeout_s):
            while state not in _DECIDED:
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
    except TimeoutError:
        return False
    return state is grpc.ChannelConnectivity.READY
