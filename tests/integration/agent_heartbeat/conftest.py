"""A controller on a free port for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headrace_agent.service import streams
from tests.integration.agent_heartbeat.controller import Controller


@pytest.fixture(autouse=True)
def _goodbyes_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a controller that listens takes longer to answer one than an agent waits for it."""
    monkeypatch.setattr(streams, "GOODBYE_S", 20.0)


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    server = Controller()
    await server.start()
    yield server
    server.reads.set()
    await server.kill()
