"""The agent's own pages: /metrics for Prometheus, /healthz and /readyz for supervisors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from aiohttp import web

from headrace_agent.service.health import Verdict
from headrace_shared.net import HostPort, explain_listen

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SHUTDOWN_S: Final = 0.2
# Whoever holds connections here must not take the descriptors that the engines are watched with.
MAX_CONNECTIONS: Final = 64


@asynccontextmanager
async def serving(
    address: HostPort,
    metrics: Callable[[], bytes],
    live: Callable[[], Verdict],
    ready: Callable[[], Verdict],
) -> AsyncIterator[None]:
    """Serve the pages while the context is open, to MAX_CONNECTIONS at once: a further one ends the oldest.

    Raises CannotListenError.
    """
    app = web.Application()

    async def show_metrics(request: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": CONTENT_TYPE})

    def showing(judge: Callable[[], Verdict]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def show(request: web.Request) -> web.Response:
            verdict = judge()
            return web.json_response(verdict.body, status=verdict.status)

        return show

    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/healthz", showing(live))
    app.router.add_get("/readyz", showing(ready))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        try:
            listening = await asyncio.get_running_loop().create_server(
                partial(_accept, runner), address.host, address.port
            )
        except OSError as error:
            raise explain_listen("metrics_listen", address, error) from error
        try:
            yield
        finally:
            listening.close()
    finally:
        await runner.cleanup()


def _accept(runner: web.AppRunner) -> asyncio.Protocol:
    """The protocol of a new connection, for which the oldest make room."""
    server = runner.server
    assert server is not None, "connections come after setup()"
    held = server.connections
    for oldest in held[: max(0, len(held) + 1 - MAX_CONNECTIONS)]:
        if isinstance(oldest.transport, asyncio.Transport):
            oldest.transport.abort()
    return server()
