"""Handlers written for grpc.aio, on the controller's own server, asked by gRPC's client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from headrace_controller.wire.handlers import MAX_UNREAD
from tests.support.gateway_port import GatewayPort

Handler = Callable[[Any, Any], Awaitable[Any]]


def same(data: bytes) -> bytes:
    return data


def picky(data: bytes) -> bytes:
    if data == b"bad":
        raise ValueError(data)
    return data


@asynccontextmanager
async def serving(handler: Handler, kind: str = "stream_stream") -> AsyncIterator[Any]:
    """What calls the handler."""
    port = GatewayPort()
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    port.add_registered_method_handlers("test.S", {"Talk": make(handler, picky, same)})
    number = await port.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{number}") as channel:
            yield getattr(channel, kind)("/test.S/Talk", request_serializer=same, response_deserializer=same)
    finally:
        await port.stop()


async def test_what_is_read_is_written_in_order() -> None:
    async def echo(_: Any, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            await context.write(message)

    async with serving(echo) as talk:
        call = talk(timeout=60)
        for number in range(20):
            await call.write(b"%d" % number)
        await call.done_writing()
        assert [each async for each in call] == [b"%d" % number for number in range(20)]
        assert await call.code() is grpc.StatusCode.OK


async def test_one_answer_ends_a_call() -> None:
    async def count(_: Any, context: Any) -> bytes:
        found = 0
        while await context.read() is not grpc.aio.EOF:
            found += 1
        return b"%d" % found

    async def turn(message: bytes, _: Any) -> bytes:
        return message[::-1]

    async with serving(count, "stream_unary") as talk:
        assert await talk(iter([b"a", b"b", b"c"]), timeout=60) == b"3"
    async with serving(turn, "unary_unary") as talk:
        assert await talk(b"abc", timeout=60) == b"cba"


async def test_a_handler_says_what_its_call_ends_with() -> None:
    async def abort(_: Any, context: Any) -> None:
        assert dict(context.invocation_metadata())["x-who"] == "me"
        assert context.peer().startswith("127.0.0.1:")
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not so")

    async def leave(_: Any, context: Any) -> None:
        context.set_code(grpc.StatusCode.UNAVAILABLE)
        context.set_details("come again")

    for handler, code, words in (
        (abort, grpc.StatusCode.FAILED_PRECONDITION, "not so"),
        (leave, grpc.StatusCode.UNAVAILABLE, "come again"),
    ):
        async with serving(handler) as talk:
            call = talk(timeout=60, metadata=(("x-who", "me"),))
            assert (await call.code(), await call.details()) == (code, words)


async def test_a_fault_ends_its_call_and_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail(_: Any, context: Any) -> None:
        raise ZeroDivisionError("a fault")

    async with serving(fail) as talk:
        assert await talk(timeout=60).code() is grpc.StatusCode.UNKNOWN
    assert "a fault of the controller ended a call" in capsys.readouterr().out


async def test_what_is_no_message_is_the_callers_fault(capsys: pytest.CaptureFixture[str]) -> None:
    async def read(_: Any, context: Any) -> None:
        await context.read()

    async with serving(read) as talk:
        call = talk(timeout=60)
        await call.write(b"bad")
        assert await call.code() is grpc.StatusCode.INTERNAL
    assert "a fault of the controller" not in capsys.readouterr().out


async def test_a_caller_that_leaves_ends_its_handler() -> None:
    ended = asyncio.Event()

    async def wait(_: Any, context: Any) -> None:
        try:
            await context.write(b"here")
            await context.read()
        finally:
            ended.set()

    async with serving(wait) as talk:
        call = talk(timeout=60)
        assert await call.read() == b"here"
        call.cancel()
        async with asyncio.timeout(30):
            await ended.wait()


async def test_a_caller_that_sends_faster_than_is_read_has_to_wait() -> None:
    go, taken = asyncio.Event(), 0

    async def slow(_: Any, context: Any) -> bytes:
        nonlocal taken
        await go.wait()
        while await context.read() is not grpc.aio.EOF:
            taken += 1
        return b""

    async with serving(slow, "stream_unary") as talk:
        call, sent = talk(timeout=60), 0

        async def send() -> None:
            nonlocal sent
            while sent < 100:
                await call.write(b"x" * 30_000)
                sent += 1
            await call.done_writing()

        sending = asyncio.create_task(send(), name="send")
        before = -1
        while before != sent or sent < MAX_UNREAD:
            before = sent
            await asyncio.sleep(0.3)
        # What the window takes, and what the client itself holds back.
        assert MAX_UNREAD <= sent < 50
        go.set()
        async with asyncio.timeout(60):
            await sending
            await call
        assert taken == 100


async def test_a_write_waits_for_a_caller_that_does_not_read() -> None:
    written = 0

    async def pour(_: Any, context: Any) -> None:
        nonlocal written
        while True:
            await context.write(b"x" * 100_000)
            written += 1

    async with serving(pour) as talk:
        call = talk(timeout=60)
        await call.read()
        before = -1
        async with asyncio.timeout(30):
            while before != written:
                before = written
                await asyncio.sleep(0.2)
        assert written < 500
        call.cancel()
