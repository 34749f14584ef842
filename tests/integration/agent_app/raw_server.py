"""Servers that write whatever bytes a test wants, to whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from ssl import SSLContext

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
EMPTY_200 = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@asynccontextmanager
async def raw_server(handle: Handler, tls: SSLContext | None = None) -> AsyncIterator[int]:
    """Serve one connection a call of `handle`; the port."""
    handling: set[asyncio.Task[None]] = set()

    async def contained(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_run(handle, reader, writer), name="raw server")
        handling.add(task)
        await asyncio.wait([task])
        writer.transport.abort()

    server = await asyncio.start_server(contained, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in handling:
            task.cancel()
        await asyncio.gather(*handling, return_exceptions=True)
        await server.wait_closed()
        await asyncio.sleep(0.01)  # the library's own tasks see that theirs have ended


async def _run(handle: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.IncompleteReadError):
        await handle(reader, writer)
        await writer.drain()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One request without a body."""
    return await reader.readuntil(b"\r\n\r\n")


def answering(*answers: bytes) -> Handler:
    """Answer each request of a connection in turn, then close it."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await read_request(reader)
            writer.write(answer)
            await writer.drain()

    return handle
