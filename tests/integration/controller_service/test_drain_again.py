"""An agent that comes back is told of the drain under way, on the new stream and after its Welcome."""

from __future__ import annotations

import asyncio

import aiohttp

from tests.integration.controller_service.node import beating, speaking
from tests.integration.controller_service.running import serving, settings_of, until


async def test_a_new_stream_is_told_of_the_drain_after_its_welcome() -> None:
    async with serving(settings_of()) as running:
        async with speaking(running.telemetry) as node:
            await node.serve()
            async with beating(node):
                await until(running.serving_c1)
                async with aiohttp.ClientSession() as session:
                    wish = {"cause": "new driver", "deadline_s": 600}
                    async with session.post(f"{running.admin}/api/v1/cells/c1/drain", json=wish) as answer:
                        assert answer.status == 202
        async with speaking(running.telemetry) as node:
            await node.hello()
            assert node.welcome is not None
            assert node.welcome.session, "the Welcome comes first"
            async with asyncio.timeout(10):
                drain = (await node.call.read()).directive.drain
    assert (drain.cell_id, drain.cause) == ("c1", "new driver")
    assert 0 < drain.deadline_ms <= 600_000
