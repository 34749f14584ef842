"""A path played at the socket, for who may not make network devices: TCP connections are taken and passed on,
what goes through them late.

It is no path to those who measure one: kernels shake hands and answer pings at once. A connection to a
server that refuses it is taken, and then closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final

from headrace_lab.wan.settings import Path
from headrace_lab.wan.streams import RESEND_S, StreamDelay
from headrace_shared.clock import Clock
from headrace_shared.net import HostPort

CHUNK_BYTES: Final = 65_536
CHUNKS_UNDER_WAY: Final = 256
"""Of one direction of a connection; a sender that is faster waits, as with a full TCP window."""
CONNECT_S: Final = 5.0

_Chunk = tuple[float, bytes]


class Relay:
    """Passes connections on to one target over a path that may change. `path` gives the one in force."""

    def __init__(self, name: str, target: HostPort, path: Callable[[], Path], clock: Clock) -> None:
        self._name = name
        self._target = target
        self._path = path
        self._clock = clock
        self._numbers = count()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        number = next(self._numbers)
        delays = [StreamDelay(f"{self._name}/{number}/{way}") for way in ("there", "back")]
        try:
            # The handshake that a path would have taken its time for.
            await asyncio.sleep(2 * self._path().delay_ms / 1000)
            async with asyncio.timeout(CONNECT_S):
                far_reader, far_writer = await asyncio.open_connection(self._target.host, self._target.port)
        except (OSError, TimeoutError):
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass(reader, far_writer, delays[0]), name=f"{self._name} there")
                tasks.create_task(self._pass(far_reader, writer, delays[1]), name=f"{self._name} back")
        except* OSError:
            pass  # one side broke it off: so does the other
        finally:
            for each in (writer, far_writer):
                each.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: StreamDelay
    ) -> None:
        """Everything from one side to the other, each piece at its moment, and then the end."""
        under_way: asyncio.Queue[_Chunk] = asyncio.Queue(CHUNKS_UNDER_WAY)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write(under_way, writer), name=f"{self._name} writes")
            while True:
                data = await reader.read(CHUNK_BYTES)
                await under_way.put((await self._due(delay), data))
                if not data:
                    return

    async def _due(self, delay: StreamDelay) -> float:
        while True:
            due = delay.due(self._path(), self._clock.now())
            if due is not None:
                return due
            await asyncio.sleep(RESEND_S)

    async def _write(self, under_way: asyncio.Queue[_Chunk], writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await under_way.get()
            await asyncio.sleep(max(0.0, due - self._clock.now()))
            if not data:
                with suppress(OSError):
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
