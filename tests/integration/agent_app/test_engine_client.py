"""Calls to an engine over real sockets: hostile answers, connections that end, encryption."""

from __future__ import annotations

import asyncio
import errno
import gzip
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.dial import NAMES_LAST_S, Dialer
from headrace_agent.collectors.app.http.errors import (
    AnswerError,
    BrokenError,
    CallError,
    RefusedError,
    SilentError,
    UnreachableError,
)
from headrace_agent.collectors.readings import EngineState
from headrace_shared.clock import SystemClock
from tests.integration.agent_app.collecting import collecting, fast
from tests.integration.agent_app.fake_engine import fake_engine
from tests.integration.agent_app.raw_server import EMPTY_200, answering, raw_server, read_request
from tests.support.clock import FakeClock

LIMIT = 1024 * 1024


@asynccontextmanager
async def calling(url: str) -> AsyncIterator[EngineClient]:
    client = EngineClient(Dialer(url, SystemClock()), url)
    try:
        yield client
    finally:
        client.close()
        await asyncio.sleep(0)


async def call(answer: bytes) -> Answer:
    """What a call comes to whose answer is these bytes."""
    async with raw_server(answering(answer)) as port, calling(f"http://127.0.0.1:{port}") as client:
        return await client.get("/metrics", 2.0, LIMIT)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", BrokenError),
        (b"\x16\x03\x01 garbage\r\n\r\n", BrokenError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc", BrokenError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", AnswerError),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", BrokenError),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde", AnswerError),
    ],
    ids=["nothing", "garbage", "cut short", "too long", "endless head", "compressed"],
)
async def test_a_hostile_answer_is_a_call_error_that_names_the_call(
    answer: bytes, error: type[CallError]
) -> None:
    with pytest.raises(error, match=r"^GET /metrics: "):
        await call(answer)


async def test_a_redirect_is_not_followed() -> None:
    found = await call(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
    assert found.status == 302


async def test_a_compression_bomb_is_refused_without_being_taken_in() -> None:
    """Two hundred megabytes in two hundred kilobytes once cost the agent all of them."""
    bomb = gzip.compress(b"\0" * 50_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    with pytest.raises(AnswerError, match="compressed"):
        await call(head + bomb)


async def test_no_compression_is_asked_for() -> None:
    asked: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await read_request(reader))
        writer.write(EMPTY_200)

    async with raw_server(handle) as port, calling(f"http://user:p%40ss@127.0.0.1:{port}/a b") as client:
        await client.get("/metrics", 2.0)
    head = asked[0].decode()
    assert head.startswith("GET /a%20b/metrics HTTP/1.1\r\n")
    assert f"\r\nHost: 127.0.0.1:{port}\r\n" in head
    assert "\r\nAccept-Encoding: identity\r\n" in head
    assert "\r\nAuthorization: Basic dXNlcjpwQHNz\r\n" in head


async def test_a_connection_is_used_again() -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await read_request(reader)
            writer.write(EMPTY_200)

    async with raw_server(handle) as port, calling(f"http://127.0.0.1:{port}") as client:
        for _ in range(5):
            assert (await client.get("/metrics", 2.0)).status == 200
    assert connections == 1


async def test_a_waiting_connection_that_was_closed_is_no_failure() -> None:
    """Engines close connections that stood idle, now and then just as they are asked."""
    async with (
        raw_server(answering(EMPTY_200)) as port,
        calling(f"http://127.0.0.1:{port}") as client,
    ):
        for _ in range(3):
            assert (await client.get("/metrics", 2.0)).status == 200
            await asyncio.sleep(0.02)


async def test_a_connection_closed_as_it_is_asked_is_asked_again_over_a_new_one() -> None:
    requests = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await read_request(reader)
        writer.write(EMPTY_200)
        await read_request(reader)
        requests += 1
        writer.close()

    async with raw_server(handle) as port, calling(f"http://127.0.0.1:{port}") as client:
        for _ in range(3):
            assert (await client.get("/metrics", 2.0)).status == 200
    assert requests == 2


async def test_no_answer_in_time_and_nobody_there() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(silent) as port, calling(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(SilentError, match=r"GET /metrics was not answered within 0\.1 s"):
            await client.get("/metrics", 0.1)
    async with calling(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(RefusedError, match=f"connection to 127.0.0.1:{port} refused"):
            await client.get("/metrics", 2.0)


async def test_a_name_that_is_not_known_proves_nothing() -> None:
    async with calling("http://no-such-host.invalid:8000") as client:
        with pytest.raises(UnreachableError, match=r"no-such-host\.invalid cannot be resolved"):
            await client.get("/metrics", 5.0)


async def test_a_name_is_looked_up_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is down is dialled many times a second."""
    asked = 0
    real = socket.getaddrinfo

    def count(host: str, *rest: object, **hints: int) -> object:
        nonlocal asked
        asked += host == "localhost"
        return real(host, *rest, **hints)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", count)
    async with calling("http://localhost:1") as client:
        for _ in range(5):
            with pytest.raises(RefusedError):
                await client.get("/metrics", 2.0)
    assert asked == 1


async def test_last_addresses_serve_while_the_name_server_keeps_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each new connection would wait for it, and an engine that closes many would be called hung."""
    answered, real, clock = threading.Event(), socket.getaddrinfo, FakeClock()

    def silent(host: str, *rest: object, **hints: int) -> object:
        if host == "localhost":
            answered.wait(60)
        return real(host, *rest, **hints)  # type: ignore[arg-type]

    async with raw_server(answering(EMPTY_200)) as port:
        dialer = Dialer(f"http://localhost:{port}", clock)
        (await dialer.dial_socket()).close()
        monkeypatch.setattr(socket, "getaddrinfo", silent)
        clock.advance(NAMES_LAST_S)
        try:
            async with asyncio.timeout(20):
                (await dialer.dial_socket()).close()
        finally:
            answered.set()


async def test_an_agent_out_of_descriptors_has_no_word_on_its_engines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All engines of the host would be called down at once, for a trouble of the agent alone."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    tries = 0

    async def exhausted(dialer: Dialer, *factory: object) -> object:
        nonlocal tries
        tries += 1
        raise OSError(errno.EMFILE, "Too many open files")

    settings = fast(warm_up=False, hung_after_s=0.3)
    async with raw_server(handle) as port, collecting(f"http://127.0.0.1:{port}", settings) as seen:
        await seen.until_state(EngineState.SERVING)
        monkeypatch.setattr(Dialer, "dial", exhausted)
        monkeypatch.setattr(Dialer, "dial_socket", exhausted)
        began = seen.now()
        await seen.until(lambda: tries >= 20 and seen.now() - began >= 1.0)
        assert seen.kinds == ["loading", "serving"]
        await seen.until(lambda: "Too many open files" in seen.reading.source.detail)


async def test_words_that_nobody_asked_for_are_not_taken_for_the_next_answer() -> None:
    """Servers say 408 before they close an idle connection; it is no word on the engine's health.

    Said after the next question it would be its answer, so that it comes long before that.
    """
    probes = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal probes
        probes += b"/health" in await read_request(reader)
        writer.write(EMPTY_200)
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await asyncio.sleep(1)

    async with (
        raw_server(handle) as port,
        collecting(
            f"http://127.0.0.1:{port}", fast(warm_up=False, probe_interval_s=1.5, scrape_timeout_s=0.5)
        ) as seen,
    ):
        await seen.until_state(EngineState.SERVING)
        before = probes
        await seen.until(lambda: probes >= before + 3)
        assert seen.kinds == ["loading", "serving"]


async def test_a_probe_whose_connection_is_closed_as_it_asks_asks_again_at_once() -> None:
    """The connection may just have been tidied up; the question is still open."""
    closed: list[float] = []
    first: list[float] = []
    now = asyncio.get_running_loop().time

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"/health" not in await read_request(reader):
            return
        first.append(now())
        writer.write(EMPTY_200)
        await read_request(reader)
        closed.append(now())

    async with (
        raw_server(handle) as port,
        collecting(f"http://127.0.0.1:{port}", fast(warm_up=False, probe_interval_s=4)) as seen,
    ):
        await seen.until(lambda: len(closed) >= 1 and len(first) >= 2)
        assert first[1] - closed[0] < 2.0, "the next probe would come after 4 s"
        assert seen.kinds in ([], ["loading", "serving"])


async def test_an_answer_in_pieces_and_late_is_an_answer() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for part in (b"HTTP/1.1 2", b"00 OK\r\nContent-", b"Length: 2\r\n\r\no", b"k"):
                writer.write(part)
                await asyncio.sleep(0.03)

    async with (
        raw_server(handle) as port,
        collecting(f"http://127.0.0.1:{port}", fast(warm_up=False)) as seen,
    ):
        await seen.until_state(EngineState.SERVING)


async def test_an_unhealthy_engine_is_told_soon() -> None:
    """Counted in probes, not in time: the first that is answered so, and one that was under way."""
    async with (
        fake_engine() as engine,
        collecting(engine.url, fast(probe_interval_s=0.1)) as seen,
    ):
        await seen.until_state(EngineState.SERVING)
        engine.health = 503
        before = engine.asked["/health"]
        await seen.until_state(EngineState.DOWN)
        assert engine.asked["/health"] <= before + 2
