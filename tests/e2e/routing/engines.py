"""Engines on loopback that take only what they can: a length, some models, a key, a certificate."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from aiohttp import web

MAX_BODY = 64 * 1024 * 1024


class Engine:
    """One engine; `refused` counts the prompts that were too long for it, `sizes` all bodies it got.

    A token is `bytes_per_token` bytes of the prompt. `health_path` is the only path on which it says how
    it is; `key` is asked for in `authorization` of requests and of health checks.
    """

    def __init__(
        self,
        name: str,
        max_model_len: int = 32768,
        models: Sequence[str] = ("m",),
        bytes_per_token: float = 4.0,
        health_path: str = "/health",
        key: str = "",
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self.max_model_len = max_model_len
        self.models = tuple(models)
        self.health_path = health_path
        self.port = 0
        self.tls = context is not None
        self.refused = 0
        self.checks = 0
        self.sizes: list[int] = []
        self.bodies: list[dict[str, object]] = []
        self.finish = asyncio.Event()
        self._bytes_per_token = bytes_per_token
        self._key = key
        self._context = context
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_get(self.health_path, self._health)
        app.router.add_post("/v1/audio/transcriptions", self._transcribe)
        app.router.add_post("/{path:.*}", self._complete)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, keepalive_timeout=5.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _health(self, request: web.Request) -> web.Response:
        self.checks += 1
        return web.Response(status=200 if self._opens(request) else 401)

    async def _transcribe(self, request: web.Request) -> web.Response:
        form = await request.post()
        return web.json_response({"cell": self.name, "model": form["model"]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        if not self._opens(request):
            return _error(401, "a key is needed")
        raw = await request.read()
        body = await request.json()
        self.sizes.append(len(raw))
        self.bodies.append(body)
        if body.get("model") not in self.models:
            return _error(404, f"the model {body.get('model')} does not exist")
        output = body.get("max_tokens", body.get("max_completion_tokens")) or 0
        if len(body.get("prompt", "")) / self._bytes_per_token + int(output) > self.max_model_len:
            self.refused += 1
            return _error(400, f"more than {self.max_model_len} tokens")
        if body.get("stream"):
            return await self._stream(request)
        return web.json_response({"cell": self.name, "model": body["model"]})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Says something, and the rest when the test says `finish`."""
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await self.finish.wait()
        await response.write(b"data: [DONE]\n\n")
        return response

    def _opens(self, request: web.Request) -> bool:
        return not self._key or request.headers.get("authorization") == f"Bearer {self._key}"


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)
