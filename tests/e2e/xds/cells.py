"""Small engines on loopback: just enough of the API to see where requests go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

MAX_BODY = 64 * 1024 * 1024


class Cell:
    """One engine. `status` is what completions answer; `healthy` what /health says.

    An answer begins after `delay_s`, which may be changed while requests wait. `gone` counts requests whose
    connection ended before their answer did.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = 0
        self.requests = 0
        self.gone = 0
        self.checks = 0
        self.status = 200
        self.healthy = True
        self.chunks = 0
        self.chunk_gap_s = 0.0
        self.delay_s = 0.0
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen; on the same port as before after a stop."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_get("/health", self._health)
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/load_lora_adapter", "/sleep"):
            app.router.add_post(path, self._complete)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, keepalive_timeout=5.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _health(self, _: web.Request) -> web.Response:
        self.checks += 1
        return web.Response(status=200 if self.healthy else 503)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests += 1
        await self._think(request)
        if _has_left(request):
            self.gone += 1
        elif self.chunks:
            return await self._stream(request)
        prompt = body.get("prompt", "")
        return web.json_response(
            {"cell": self.name, "model": body["model"], "length": len(prompt)}, status=self.status
        )

    async def _think(self, request: web.Request) -> None:
        """Take the delay, or less where nobody waits any more."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(0)
        while loop.time() - began < self.delay_s and not _has_left(request):  # noqa: ASYNC110 (the test's doing)
            await asyncio.sleep(0.01)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            for number in range(self.chunks):
                await response.write(f"data: {number}\n\n".encode())
                await asyncio.sleep(self.chunk_gap_s)
            await response.write(b"data: [DONE]\n\n")
        except ConnectionError:
            self.gone += 1
        return response


def _has_left(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


class CuttingCell(Cell):
    """Accepts connections and, once asked, ends them after `begun`: by default without a byte."""

    def __init__(self, name: str, begun: bytes = b"") -> None:
        super().__init__(name)
        self._begun = begun
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._cut, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self._open:
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def _cut(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            while head.startswith(b"GET /health"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
                head = await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            writer.write(self._begun)
            await writer.drain()
            # What was begun gets through before the end does, on a busy machine too.
            await asyncio.sleep(0.5 if self._begun else 0)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._open.discard(writer)
            writer.transport.abort()


@asynccontextmanager
async def running_cells(*cells: Cell) -> AsyncIterator[tuple[Cell, ...]]:
    """Start cells, and stop what is left of them at the end."""
    try:
        for cell in cells:
            await cell.start()
        yield cells
    finally:
        for cell in cells:
            await cell.stop()
