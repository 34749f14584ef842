"""Handlers of calls whose peer reads nothing, on a connection without a socket."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc
import pytest

from headrace_controller.wire import frames
from headrace_controller.wire import handlers as module
from headrace_controller.wire.call import Peer
from headrace_controller.wire.connection import Connection
from headrace_controller.wire.frames import Setting
from headrace_controller.wire.handlers import Handlers
from headrace_controller.wire.limits import Limits
from headrace_controller.wire.messages import Room
from tests.support.wire import OPENING, headers

FIELDS = [*OPENING[:2], (":path", "/test.S/Talk"), *OPENING[3:]]


def same(data: bytes) -> bytes:
    return data


def unread(handler: Any, streams: int, limits: Limits | None = None) -> Connection:
    """A connection whose peer has opened so many calls, and takes no message."""
    handlers = Handlers()
    made = grpc.stream_stream_rpc_method_handler(handler, same, same)
    handlers.add_registered_method_handlers("test.S", {"Talk": made})
    connection = Connection(
        handlers.methods(),
        limits or Limits(),
        Room(1000),
        Peer("10.0.0.9:5000"),
        lambda: None,
        lambda _, error: None,
        0.0,
    )
    connection.begin()
    opened = [headers(2 * number + 1, FIELDS) for number in range(streams)]
    connection.receive(
        frames.PREFACE + frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}) + b"".join(opened), 0.0
    )
    while connection.turn(0.0):
        pass
    return connection


async def test_a_write_that_is_given_up_does_not_keep_its_call() -> None:
    async def give_up(_: Any, context: Any) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await context.write(b"x")

    connection = unread(give_up, 1)
    async with asyncio.timeout(5):
        while connection.calls:  # noqa: ASYNC110 (the handler's own task)
            await asyncio.sleep(0.01)
    assert connection.outgoing.waiting == 0


async def test_calls_of_one_connection_are_bounded_and_make_room_as_they_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_CALLS", 2)
    begun = 0

    async def wait(_: Any, context: Any) -> None:
        nonlocal begun
        begun += 1
        await context.read()

    connection = unread(wait, 3)
    await asyncio.sleep(0)
    assert (connection.calls, begun) == (2, 2)
    connection.receive(frames.reset(1, frames.ErrorCode.CANCEL), 0.0)
    connection.turn(0.0)
    await asyncio.sleep(0.01)
    connection.receive(headers(7, FIELDS), 0.0)
    connection.turn(0.0)
    await asyncio.sleep(0)
    assert (connection.calls, begun) == (2, 3)
    connection.close()


async def test_a_handler_whose_call_has_ended_reads_the_end() -> None:
    ended = asyncio.Event()

    async def ask(_: Any, context: Any) -> None:
        await context.write(b"x" * 100)
        assert await context.read() is grpc.aio.EOF
        ended.set()

    # The second one finds that the first has left too much unread.
    connection = unread(ask, 2, Limits(unread=10))
    async with asyncio.timeout(5):
        await ended.wait()
    assert connection.calls == 1
    connection.close()
