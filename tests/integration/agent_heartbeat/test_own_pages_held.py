"""The agent's own pages while somebody holds their connections."""

from __future__ import annotations

import asyncio

import aiohttp

from headrace_agent.service.health import Verdict
from headrace_agent.service.web import MAX_CONNECTIONS, serving
from headrace_shared.net import HostPort
from tests.integration.agent_heartbeat.controller import until
from tests.support.ports import free_port

HELD = 4 * MAX_CONNECTIONS


async def test_silent_connections_are_bounded_and_whoever_asks_is_answered() -> None:
    port, well = free_port(), Verdict((), {})
    async with serving(HostPort("127.0.0.1", port), lambda: b"up 1\n", lambda: well, lambda: well):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(HELD)]
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{port}/healthz", timeout=aiohttp.ClientTimeout(10)) as answer,
            ):
                assert answer.status == 200
            await until(lambda: sum(reader.at_eof() for reader, _ in held) >= HELD - MAX_CONNECTIONS)
        finally:
            for _, writer in held:
                writer.transport.abort()
