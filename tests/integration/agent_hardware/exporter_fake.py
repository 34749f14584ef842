"""A DCGM exporter on loopback that misbehaves on demand."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

UUID = "GPU-00000000-0000-4000-8000-000000000001"
# Unfolds to 20 MB.
FOLDED = gzip.compress(b"#\n" * 10_000_000)


class FakeExporter:
    """Serves one GPU. `mode`: ok, still (figures do not move), 500, empty, hang, slow (an endless
    body), html, latin1, cut, short (less than its Content-Length), huge, vllm, redirect, gzip."""

    def __init__(self, keep_alive_s: float = 75.0) -> None:
        self._keep_alive_s = keep_alive_s
        self.mode = "ok"
        self.uuid = UUID
        self.energy = 0
        self.xid = 0
        self.requests = 0
        self.authorization = ""
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen, on the same port as before where there was one."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, shutdown_timeout=0.1, keepalive_timeout=self._keep_alive_s
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def page(self) -> str:
        labels = f'gpu="0",UUID="{self.uuid}",modelName="Fake",Hostname="node"'
        figures = {
            "DCGM_FI_DEV_GPU_UTIL": 91,
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.25,
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": self.energy,
            "DCGM_FI_DEV_XID_ERRORS": self.xid,
        }
        return "".join(f"{name}{{{labels}}} {value}\n" for name, value in figures.items())

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        self.authorization = request.headers.get("Authorization", "")
        if self.mode == "ok":
            self.energy += 1
        if self.mode == "hang":
            await asyncio.sleep(30)
        if self.mode in ("slow", "huge", "short"):
            return await self._stream(request)
        if self.mode == "gzip":
            return web.Response(body=FOLDED, headers={"Content-Encoding": "gzip"})
        if self.mode == "redirect":
            raise web.HTTPFound("/metrics")
        bodies = {
            "500": (500, b"failed to collect"),
            "empty": (200, b""),
            "html": (200, b"<html><body>It works!</body></html>\n"),
            "latin1": (200, b"DCGM_FI_DEV_GPU_UTIL \xe9\n"),
            "cut": (200, self.page().encode()[:-9]),
            "vllm": (200, b"vllm:num_requests_running 3\n"),
        }
        status, body = bodies.get(self.mode, (200, self.page().encode()))
        return web.Response(status=status, body=body)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if self.mode == "short":
            response.content_length = 100_000
        await response.prepare(request)
        await response.write(self.page().encode())
        if self.mode == "slow":
            while True:
                await response.write(b"#\n")
                await asyncio.sleep(0.05)
        if self.mode == "short" and request.transport is not None:
            request.transport.abort()
            return response
        for _ in range(160):
            await response.write(b"# " + b"x" * 65_533 + b"\n")
        return response


@asynccontextmanager
async def serving(keep_alive_s: float = 75.0) -> AsyncIterator[FakeExporter]:
    """A fake exporter for the length of a test; it ends connections that are idle for so long."""
    exporter = FakeExporter(keep_alive_s)
    await exporter.start()
    try:
        yield exporter
    finally:
        await exporter.stop()
