"""An engine on loopback that fails on command."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.support.ports import free_port
from tests.unit.agent.collectors.app.engine_pages import vllm_page

MODELS = {"data": [{"id": "tiny", "parent": None, "max_model_len": 4096}]}


class FakeEngine:
    """Answers as vLLM does; its attributes say how, `die` and `listen` end and start it.

    `hanging` paths are never answered; an `endless` page has no length and goes on until the reader
    leaves, `sent` bytes of it so far. Showing the page takes `page_s` seconds; the first `bad_pages` are
    answered 500. With a `key`, whoever does not show it gets 401 at `locked` paths. `asked` counts
    requests by path, `at_once` the most health probes that were ever open together.
    """

    def __init__(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.host = host
        self.tls = tls
        self.port = 0
        self.health = 200
        self.completion = 200
        self.page = vllm_page()
        self.page_after_completion: bytes | None = None
        self.page_status = 200
        self.page_s = 0.0
        self.bad_pages = 0
        self.pages_at: list[float] = []
        self.hanging: set[str] = set()
        self.endless = False
        self.sent = 0
        self.asked: dict[str, int] = {}
        self.keys: set[str | None] = set()
        self.key = ""
        self.locked: set[str] = set()
        self.at_once = 0
        self._open_probes = 0
        self._released = asyncio.Event()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}"

    async def listen(self) -> None:
        """Bind the port (a free one the first time) and answer."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port, reuse_address=True, ssl_context=self.tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def die(self) -> None:
        """Close the listening socket and every connection, as the kernel does for a dead process."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        assert runner.server is not None
        for site in list(runner.sites):
            await site.stop()
        for connection in list(runner.server.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()

    def release(self) -> None:
        """Answer what was left hanging."""
        self.hanging.clear()
        self._released.set()
        self._released = asyncio.Event()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self.asked[path] = self.asked.get(path, 0) + 1
        if path.startswith("/v1/"):
            self.keys.add(request.headers.get("Authorization"))
        if path == "/health":
            self._open_probes += 1
            self.at_once = max(self.at_once, self._open_probes)
        try:
            if path in self.hanging:
                await self._released.wait()
            page = self.page  # as it was when it was asked for
            if path == "/metrics":
                self.pages_at.append(asyncio.get_running_loop().time())
                await asyncio.sleep(self.page_s)
            if path == "/metrics" and self.endless:
                return await self._stream(request)
            if path in self.locked and request.headers.get("Authorization") != f"Bearer {self.key}":
                return web.Response(status=401)
            return self._respond(path, page)
        finally:
            if path == "/health":
                self._open_probes -= 1

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"# padding\n" * 6554)
            self.sent += 65540

    def _respond(self, path: str, page: bytes) -> web.Response:
        if path == "/health":
            return web.Response(status=self.health)
        if path == "/metrics" and self.bad_pages:
            self.bad_pages -= 1
            return web.Response(status=500)
        if path == "/metrics":
            return web.Response(status=self.page_status, body=page)
        if path == "/v1/models":
            return web.json_response(MODELS)
        if path == "/version":
            return web.json_response({"version": "0.32.0"})
        if path == "/v1/completions":
            self.page = self.page_after_completion or self.page
            body = {} if self.completion == 200 else {"error": {"message": "not yet"}}
            return web.json_response(body, status=self.completion)
        return web.Response(status=404)


@asynccontextmanager
async def fake_engine(
    host: str = "127.0.0.1", listening: bool = True, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeEngine]:
    """A fake engine for the length of a block; not listening, it has a port that refuses."""
    engine = FakeEngine(host, tls)
    if listening:
        await engine.listen()
    else:
        engine.port = free_port(host)
    try:
        yield engine
    finally:
        engine.release()
        await engine.die()
