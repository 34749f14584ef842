"""Controllers on free ports for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.agent_heartbeat.controller import Controller


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    server = Controller()
    await server.start()
    yield server
    await server.kill()


@pytest.fixture
async def second() -> AsyncIterator[Controller]:
    server = Controller()
    await server.start()
    yield server
    await server.kill()
