"""A controller that is away is looked for without calls, which cost memory that never comes back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import grpc
import pytest
from structlog.testing import capture_logs

from headrace_agent.heartbeat import stream as stream_module
from headrace_agent.heartbeat.conversation import Conversation
from headrace_agent.heartbeat.reach import reached
from headrace_agent.heartbeat.stream import ASK_WHY_EVERY
from headrace_shared.clock import SystemClock
from tests.integration.agent_heartbeat.controller import Controller, streaming, until

clock = SystemClock()


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is held and that nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that streams make; their attempts follow each other at once."""
    made: list[str] = []
    run = Conversation.run

    async def noted(conversation: Conversation, name: str) -> None:
        made.append(name)
        await run(conversation, name)

    monkeypatch.setattr(Conversation, "run", noted)
    monkeypatch.setattr(stream_module.Backoff, "next_s", lambda backoff: 0.01)
    return made


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What looking for controllers found."""
    found: list[bool] = []

    async def noted(channel: grpc.aio.Channel, timeout_s: float) -> bool:
        found.append(await reached(channel, timeout_s))
        return found[-1]

    monkeypatch.setattr(stream_module, "reached", noted)
    return found


async def test_a_controller_that_listens_is_reached(controller: Controller) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{controller.port}") as channel:
        assert await reached(channel, 5.0)


async def test_a_closed_port_is_not_reached_and_said_at_once(port: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        began = clock.now()
        assert not await reached(channel, 30.0)
        assert clock.now() - began < 10.0


async def test_what_accepts_and_says_nothing_is_not_reached_within_the_time_out() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{mute.getsockname()[1]}") as channel:
            assert not await reached(channel, 0.2)


async def test_a_dead_controller_is_called_once_and_then_only_looked_for(
    port: int, calls: list[str], looks: list[bool]
) -> None:
    with capture_logs() as logs:
        async with streaming(port):
            await until(lambda: len(looks) >= ASK_WHY_EVERY - 1)
            assert len(calls) == 1
            await until(lambda: len(calls) == 2)
    assert not any(looks)
    assert [line["event"] for line in logs] == ["controller unreachable"]


async def test_a_controller_that_comes_back_is_called_again(
    controller: Controller, calls: list[str], looks: list[bool]
) -> None:
    async with streaming(controller.port) as stream:
        await until(lambda: stream.connected)
        await controller.kill()
        await until(lambda: looks.count(False) >= 3)
        assert len(calls) == 2, "the one that was welcomed, and the one that said why no other is"
        await controller.start()
        await until(lambda: stream.connected)
    assert looks[-1]


async def test_a_look_that_is_cancelled_leaves_nothing_behind() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{mute.getsockname()[1]}") as channel:
            look = asyncio.create_task(reached(channel, 30.0), name="look")
            await asyncio.sleep(0.1)
            look.cancel()
            await asyncio.wait([look], timeout=5.0)
            assert look.cancelled()
