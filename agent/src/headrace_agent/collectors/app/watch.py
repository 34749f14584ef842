"""The fastest sign of death: an idle connection that ends.

The kernel closes a dead process's sockets at once, long before a probe is due. A connection on
which nothing was asked stays open as long as its engine lives; where it ends and a reconnect is
refused, the engine is gone. Where the reconnect is accepted, something merely tidied up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from urllib.parse import urlsplit

from headrace_agent.collectors.app.client import is_refused
from headrace_shared.clock import Clock

CONNECT_TIMEOUT_S = 1.0
# A connection that lived shorter than this may be closed again at once: reconnect ever slower.
_SHORT_LIFE_S = 1.0
_FIRST_DELAY_S = 0.01
_LONGEST_DELAY_S = 0.5

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def endpoint(url: str) -> tuple[str, int]:
    """Host and port of an http or https URL."""
    parts = urlsplit(url)
    return str(parts.hostname), parts.port or (443 if parts.scheme == "https" else 80)


class ConnectionWatch:
    """Holds one idle connection to an engine.

    `gone(cause)` is called once when a connection has ended and its reconnect is refused,
    `connected()` whenever a connection is made.
    """

    def __init__(
        self, url: str, clock: Clock, gone: Callable[[str], None], connected: Callable[[], None]
    ) -> None:
        self._host, self._port = endpoint(url)
        self._clock = clock
        self._gone = gone
        self._connected = connected

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
            await _until_end(connection)
            delay = next_delay(delay, self._clock.now() - since)
            await asyncio.sleep(delay)

    async def _connect(self, after_end: bool) -> Connection | None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await asyncio.open_connection(self._host, self._port)
        except (OSError, UnicodeError) as error:
            # A time-out or a missing route proves nothing; the probe judges those.
            if after_end and is_refused(error):
                self._gone("connection closed, reconnect refused")
            return None
        self._connected()
        return connection


def next_delay(delay: float, lived_s: float) -> float:
    """Seconds to wait before a reconnect: none after a long life, ever more after short ones."""
    if lived_s >= _SHORT_LIFE_S:
        return 0.0
    return min(max(2 * delay, _FIRST_DELAY_S), _LONGEST_DELAY_S)


async def _until_end(connection: Connection) -> None:
    reader, writer = connection
    try:
        with contextlib.suppress(OSError):  # a reset is an end like any other
            while await reader.read(4096):
                continue
    finally:
        writer.transport.abort()
