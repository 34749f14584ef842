"""Asking an engine itself, over real sockets on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from headrace_controller.control.confirmation import EngineInquiry
from headrace_controller.lifecycle import Answer
from headrace_shared.net import HostPort

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Asker:
    """An inquiry and what it heard."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[tuple[str, Answer, str]] = asyncio.Queue()
        self.inquiry = EngineInquiry(lambda *answer: self.answers.put_nowait(answer))

    async def ask(self, address: HostPort, timeout_s: float = 2.0) -> tuple[Answer, str]:
        self.inquiry.ask("c1", address, timeout_s)
        async with asyncio.timeout(5):
            _, answer, detail = await self.answers.get()
        return answer, detail


@pytest.fixture
async def asker() -> AsyncIterator[Asker]:
    asker = Asker()
    yield asker
    await asker.inquiry.close()


@pytest.fixture
async def never() -> AsyncIterator[asyncio.Event]:
    """What a handler that does not answer waits for; it comes when the test is over."""
    event = asyncio.Event()
    yield event
    event.set()
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Handler], Awaitable[HostPort]]]:
    runners: list[web.AppRunner] = []

    async def start(handler: Handler) -> HostPort:
        app = web.Application()
        app.router.add_get("/health", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return HostPort("127.0.0.1", runner.addresses[0][1])

    yield start
    for runner in runners:
        await runner.cleanup()


async def test_200_is_alive_and_another_status_is_dead(
    asker: Asker, serve: Callable[[Handler], Awaitable[HostPort]]
) -> None:
    statuses = iter((200, 503))

    async def health(_: web.Request) -> web.Response:
        return web.Response(status=next(statuses))

    address = await serve(health)
    assert (await asker.ask(address))[0] is Answer.ALIVE
    assert await asker.ask(address) == (Answer.DEAD, "/health answered 503")


async def test_nobody_listens_is_dead(asker: Asker, serve: Callable[[Handler], Awaitable[HostPort]]) -> None:
    address = HostPort("127.0.0.1", 1)
    answer, detail = await asker.ask(address)
    assert answer is Answer.DEAD
    assert "cannot be reached" in detail


async def test_no_answer_in_time_is_no_answer(
    asker: Asker, serve: Callable[[Handler], Awaitable[HostPort]], never: asyncio.Event
) -> None:
    async def health(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    answer, detail = await asker.ask(await serve(health), 0.05)
    assert answer is Answer.NO_ANSWER
    assert "within 50 ms" in detail


async def test_one_question_a_cell_at_a_time_and_close_ends_them(
    asker: Asker, serve: Callable[[Handler], Awaitable[HostPort]], never: asyncio.Event
) -> None:
    asked = 0
    begun = asyncio.Event()

    async def health(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        begun.set()
        await never.wait()
        return web.Response()

    address = await serve(health)
    for _ in range(3):
        asker.inquiry.ask("c1", address, 20.0)
    await asyncio.wait_for(begun.wait(), 5)
    await asker.inquiry.close()
    assert asked == 1
    assert asker.answers.empty()
