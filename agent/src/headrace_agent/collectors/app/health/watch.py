"""The fastest sign of death: an idle connection that ends.

The kernel closes a dead process's sockets at once, long before a probe is due. A connection on
which nothing was asked stays open as long as its engine lives; where it ends and a reconnect is
refused, the engine is gone. Where the reconnect is accepted, something merely tidied up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace_agent.collectors.app.http.dial import Dialer
from headrace_shared.clock import Clock

CONNECT_TIMEOUT_S = 1.0
# A connection that lived shorter than this may be closed again at once: reconnect ever slower.
_SHORT_LIFE_S = 1.0
_FIRST_DELAY_S = 0.01
_LONGEST_DELAY_S = 0.5


class _Idle(asyncio.Protocol):
    """A connection on which nothing is asked; what comes on it is ignored."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()

    async def until_end(self) -> None:
        """Return when it has ended; cancelled, end it."""
        try:
            await self._ended.wait()
        finally:
            if self._transport is not None:
                self._transport.abort()


class ConnectionWatch:
    """Holds one idle connection to an engine.

    `gone(cause)` is called once when a connection has ended and its reconnect is refused,
    `connected()` whenever a connection is made, `ended()` whenever one ends.
    """

    def __init__(
        self,
        dialer: Dialer,
        clock: Clock,
        gone: Callable[[str], None],
        connected: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._dialer = dialer
        self._clock = clock
        self._gone = gone
        self._connected = connected
        self._ended = ended

    async def run(self) -> None:
        """Watch until cancelled."""
        delay = 0.0
        ended = False
        while True:
            connection = await self._connect(ended)
            ended = connection is not None
            if connection is None:
                await asyncio.sleep(_LONGEST_DELAY_S)
                continue
            since = self._clock.now()
            await connection.until_end()
            self._ended()
            delay = next_delay(delay, self._clock.now() - since)
            await asyncio.sleep(delay)

    async def _connect(self, after_end: bool) -> _Idle | None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await self._dialer.dial(_Idle)
        except ConnectionRefusedError:
            if after_end:
                self._gone("connection closed, reconnect refused")
            return None
        except (OSError, ValueError):
            # A time-out or a missing route proves nothing; the probe judges those.
            return None
        self._connected()
        return connection


def next_delay(delay: float, lived_s: float) -> float:
    """Seconds to wait before a reconnect: none after a long life, ever more after short ones."""
    if lived_s >= _SHORT_LIFE_S:
        return 0.0
    return min(max(2 * delay, _FIRST_DELAY_S), _LONGEST_DELAY_S)
