"""Asking an engine itself, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
import trustme
from aiohttp import web

from headrace_controller.control.confirmation import EngineInquiry, Question
from headrace_controller.lifecycle import Answer
from headrace_controller.settings import PoolSettings, UpstreamTlsSettings
from headrace_shared.net import HostPort

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Serve(Protocol):
    """Starts an engine that answers on one path."""

    async def __call__(
        self, handler: Handler, path: str = "/health", context: ssl.SSLContext | None = None
    ) -> Question: ...


async def well(_: web.Request) -> web.Response:
    return web.Response()


class Asker:
    """An inquiry and what it heard."""

    def __init__(self, pools: Mapping[str, PoolSettings] | None = None) -> None:
        self.answers: asyncio.Queue[tuple[str, Answer, str]] = asyncio.Queue()
        self.inquiry = EngineInquiry(lambda *answer: self.answers.put_nowait(answer), pools)

    async def ask(self, question: Question, timeout_s: float = 30.0) -> tuple[Answer, str]:
        self.inquiry.ask("c1", question, timeout_s)
        async with asyncio.timeout(60):
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
async def serve() -> AsyncIterator[Serve]:
    runners: list[web.AppRunner] = []

    async def start(
        handler: Handler, path: str = "/health", context: ssl.SSLContext | None = None
    ) -> Question:
        app = web.Application()
        app.router.add_get(path, handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        return Question(HostPort("127.0.0.1", runner.addresses[0][1]))

    yield start
    for runner in runners:
        await runner.cleanup()


async def test_200_is_alive_and_another_status_is_dead(asker: Asker, serve: Serve) -> None:
    statuses = iter((200, 503))

    async def health(_: web.Request) -> web.Response:
        return web.Response(status=next(statuses))

    address = await serve(health)
    assert (await asker.ask(address))[0] is Answer.ALIVE
    assert await asker.ask(address) == (Answer.DEAD, "/health answered 503")


@pytest.mark.parametrize("path", ["/v2/health/ready", "/v1/models"])
async def test_an_engine_is_asked_where_its_kind_says_how_it_is(
    asker: Asker, serve: Serve, path: str
) -> None:
    """Triton has no /health, and SGLang's generates a token first."""
    engine = replace(await serve(well, path), path=path)
    assert await asker.ask(engine) == (Answer.ALIVE, f"{path} answered 200")


@pytest.mark.parametrize("status", [301, 401, 403, 404, 405, 429])
async def test_an_answer_that_says_nothing_of_the_engine_fails_nobody(
    asker: Asker, serve: Serve, status: int
) -> None:
    async def health(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"location": "/elsewhere"})

    assert await asker.ask(await serve(health)) == (Answer.ALIVE, f"/health answered {status}")


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_an_engine_that_says_it_is_not_well_is_dead(asker: Asker, serve: Serve, status: int) -> None:
    async def health(_: web.Request) -> web.Response:
        return web.Response(status=status)

    assert await asker.ask(await serve(health)) == (Answer.DEAD, f"/health answered {status}")


class Authority:
    """A certificate authority, and what it issues for an engine."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.ca = trustme.CA()
        self.path = directory / f"{name}.pem"
        self.ca.cert_pem.write_to_path(self.path)

    def context(self, host: str = "engine.example", asks: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.ca.issue_cert(host).configure_cert(context)
        if asks:
            self.ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


async def test_an_https_engine_is_asked_by_tls_and_need_not_prove_who_it_is(
    asker: Asker, serve: Serve, tmp_path: Path
) -> None:
    engine = replace(await serve(well, context=Authority(tmp_path).context()), tls=True)
    assert await asker.ask(engine) == (Answer.ALIVE, "/health answered 200")


async def test_a_server_that_answers_something_else_than_tls_runs(asker: Asker, serve: Serve) -> None:
    answer, detail = await asker.ask(replace(await serve(well), tls=True))
    assert (answer, "not to this TLS" in detail) == (Answer.ALIVE, True), detail


async def test_an_engine_that_wants_a_certificate_is_shown_the_pools(serve: Serve, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.ca.issue_cert("controller.example")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    pool = PoolSettings(tls=UpstreamTlsSettings(ca=authority.path, cert=cert, key=key))
    asker = Asker({"m": pool})
    try:
        engine = await serve(well, context=authority.context(asks=True))
        assert await asker.ask(replace(engine, models=("m",))) == (Answer.ALIVE, "/health answered 200")
    finally:
        await asker.inquiry.close()


@pytest.mark.parametrize(
    ("server_name", "signed_by", "expected"),
    [
        ("engine.example", "own", Answer.ALIVE),
        (None, "own", Answer.ALIVE),
        ("another.example", "own", Answer.DEAD),
        ("engine.example", "other", Answer.DEAD),
    ],
)
async def test_with_an_authority_only_the_engine_itself_counts(
    serve: Serve, tmp_path: Path, server_name: str | None, signed_by: str, expected: Answer
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    tls = UpstreamTlsSettings(ca=authority.path, server_name=server_name)
    asker = Asker({"m": PoolSettings(tls=tls)})
    signer = authority if signed_by == "own" else other
    try:
        # Its agent does not say that it speaks TLS: the pool's setting is enough.
        engine = replace(await serve(well, context=signer.context()), models=("other", "m"))
        answer, detail = await asker.ask(engine)
        assert answer is expected, detail
    finally:
        await asker.inquiry.close()


async def test_nobody_listens_is_dead(asker: Asker, serve: Serve) -> None:
    answer, detail = await asker.ask(Question(HostPort("127.0.0.1", 1)))
    assert answer is Answer.DEAD
    assert "cannot be reached" in detail


@pytest.mark.parametrize("why", [errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EMFILE, errno.EADDRNOTAVAIL])
async def test_what_cannot_be_asked_proves_nothing(
    asker: Asker, monkeypatch: pytest.MonkeyPatch, why: int
) -> None:
    """A controller that lost its own network would otherwise find every engine dead at once."""

    async def fails(*_: object) -> None:
        raise OSError(why, os.strerror(why))

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", fails)
    answer, detail = await asker.ask(Question(HostPort("192.0.2.1", 8000)))
    assert answer is Answer.NO_ANSWER
    assert os.strerror(why) in detail


async def test_no_answer_in_time_is_no_answer(asker: Asker, serve: Serve, never: asyncio.Event) -> None:
    async def health(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    answer, detail = await asker.ask(await serve(health), 0.05)
    assert answer is Answer.NO_ANSWER
    assert "within 50 ms" in detail


async def test_one_question_a_cell_at_a_time_and_close_ends_them(
    asker: Asker, serve: Serve, never: asyncio.Event
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
    await asyncio.wait_for(begun.wait(), 30)
    await asker.inquiry.close()
    assert asked == 1
    assert asker.answers.empty()
