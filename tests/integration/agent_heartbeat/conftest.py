"""A controller on a free port for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.agent_heartbeat.controller import Controller


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    server = Controller()
    await server.start()
    yield server
    server.reads.set()
    await server.kill()
