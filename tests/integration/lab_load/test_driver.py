"""The load driver against servers that answer well, badly, slowly and not at all."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from headrace_lab.load.arrivals import Arrival, Mix, schedule
from headrace_lab.load.driver import MOST_LINE_BYTES, REFUSED, Driver, Limits, Target
from headrace_lab.load.records import Record
from headrace_lab.stack.ports import free_ports
from headrace_shared.clock import SystemClock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
QUICK = Limits(in_flight=100, request_s=20.0, drain_s=30.0)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[Target]:
    app = web.Application()
    app.router.add_post("/v1/completions", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield Target(f"http://127.0.0.1:{port}", "m", {"10.0.0.1:8000": "mapped"})
    finally:
        await runner.cleanup()


async def stream(
    request: web.Request, *lines: str, delay_s: float = 0.0, cell: str = "c"
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-headrace-cell": cell})
    await response.prepare(request)
    for line in lines:
        await asyncio.sleep(delay_s)
        await response.write(f"data: {line}\n\n".encode())
    return response


def token(text: str = "x") -> str:
    return json.dumps({"choices": [{"index": 0, "text": text}]})


def at(*times: float) -> list[Arrival]:
    return [Arrival(i, t, "short", 10, 2) for i, t in enumerate(times)]


async def drive(handler: Handler, arrivals: list[Arrival], limits: Limits = QUICK) -> list[Record]:
    async with serving(handler) as target:
        return await Driver(target, SystemClock(), limits, seed=1).run(arrivals)


async def test_ttft_is_the_first_token_not_the_headers() -> None:
    """Streaming engines send headers early; timing them would flatter every figure."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, token(), token(), "[DONE]", delay_s=0.5)

    (record,) = await drive(handler, at(0.0))
    assert record.ok
    assert record.cell == "c"
    assert record.ttft_ms is not None
    assert 490 <= record.ttft_ms < 990
    assert record.e2e_ms >= 1490


async def test_the_request_is_what_an_engine_expects() -> None:
    seen: list[dict[str, object]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(await request.json())
        return await stream(request, token(), "[DONE]")

    (record,) = await drive(handler, [Arrival(7, 0.0, "long", 123, 9)])
    assert seen[0]["model"] == "m"
    assert seen[0]["stream"] is True
    assert seen[0]["max_tokens"] == 9
    assert len(str(seen[0]["prompt"]).split()) == 123
    assert record.kind == "long"
    assert record.prompt_bytes == len(str(seen[0]["prompt"]))


async def test_sending_never_waits_for_answers() -> None:
    """Open loop: a server that answers nothing before it has met the whole load does meet it."""
    inside = 0
    all_inside = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal inside
        inside += 1
        if inside == 30:
            all_inside.set()
        await all_inside.wait()
        return await stream(request, token(), "[DONE]")

    records = await drive(handler, schedule(rps=100, seconds=0.3, seed=1, mix=Mix(), process="constant"))
    assert len(records) == 30
    assert all(r.ok for r in records)


async def test_the_bound_on_requests_in_flight_refuses_and_counts() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1.0)
        return await stream(request, token(), "[DONE]")

    records = await drive(handler, at(*[0.0] * 8), Limits(in_flight=3, request_s=20.0, drain_s=20.0))
    assert sum(r.error == REFUSED for r in records) == 5
    assert sum(r.ok for r in records) == 3


@pytest.mark.parametrize("lines", [[], [token()], [token(), token()]])
async def test_a_stream_without_its_end_is_a_failure(lines: list[str]) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, *lines)

    (record,) = await drive(handler, at(0.0))
    assert record.status == 200
    assert not record.ok
    assert "[DONE]" in record.error


async def test_a_connection_cut_in_the_stream_is_a_failure() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = await stream(request, token())
        assert request.transport is not None
        request.transport.abort()
        return response

    (record,) = await drive(handler, at(0.0))
    assert not record.ok
    assert record.cell == "c"
    assert record.error


@pytest.mark.parametrize("line", ["{not json", "[]", "7", '{"error": {"message": "it broke"}}'])
async def test_nonsense_and_errors_in_the_stream_are_failures(line: str) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, line, "[DONE]")

    (record,) = await drive(handler, at(0.0))
    assert not record.ok
    assert record.ttft_ms is None


@pytest.mark.parametrize("line", ["[]", '{"error": {"message": "it broke"}}'])
async def test_what_goes_wrong_after_the_first_token_is_a_failure_too(line: str) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, token(), line, "[DONE]")

    (record,) = await drive(handler, at(0.0))
    assert not record.ok
    assert record.ttft_ms is not None


async def test_lines_may_come_in_pieces_and_together() -> None:
    text = f"data: {token()}\n\n" * 3 + "data: [DONE]\n\n"
    cuts = [0, 3, 9, 30, 31, len(text) - 4, len(text)]

    async def handler(request: web.Request) -> web.StreamResponse:
        response = await stream(request)
        for start, end in itertools.pairwise(cuts):
            await response.write(text[start:end].encode())
            await asyncio.sleep(0.02)
        return response

    (record,) = await drive(handler, at(0.0))
    assert record.ok


async def test_a_line_without_an_end_is_a_failure() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, token(), "x" * (2 * MOST_LINE_BYTES))

    async def endless(request: web.Request) -> web.StreamResponse:
        response = await stream(request)
        while True:
            await response.write(b"x" * 4096)

    records = [*await drive(handler, at(0.0)), *await drive(endless, at(0.0))]
    assert not any(record.ok for record in records)
    assert "more than" in records[1].error


async def test_a_rejection_keeps_its_status_message_and_cell() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        body = {"error": {"message": "maximum context length is 1024"}}
        return web.json_response(body, status=400, headers={"x-headrace-upstream": "10.0.0.1:8000"})

    (record,) = await drive(handler, at(0.0))
    assert (record.status, record.cell, record.ok) == (400, "mapped", False)
    assert record.error == "maximum context length is 1024"


async def test_a_server_that_hangs_costs_its_time_out_only() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError("nobody waits so long")

    (record,) = await drive(handler, at(0.0), Limits(in_flight=5, request_s=0.2, drain_s=2.0))
    assert record.error.startswith("time-out")
    assert 190 <= record.e2e_ms < 20_000


async def test_the_end_of_the_run_is_bounded() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError("nobody waits so long")

    (record,) = await drive(handler, at(0.0), Limits(in_flight=5, request_s=60, drain_s=0.2))
    assert record.error == "cut at the end of the run"
    assert not record.ok


async def test_nobody_listening_is_a_record_not_a_crash() -> None:
    (port,) = free_ports(1)
    driver = Driver(Target(f"http://127.0.0.1:{port}", "m"), SystemClock(), QUICK)
    records = await driver.run(at(0.0, 0.01))
    assert [r.status for r in records] == [0, 0]
    assert all(r.error and not r.ok and r.cell == "" for r in records)


async def test_a_failed_request_is_tried_again_and_its_first_attempt_remembered() -> None:
    asked = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if asked < 3:
            return web.json_response({"error": "no"}, status=503, headers={"x-headrace-cell": "bad"})
        return await stream(request, token(), "[DONE]")

    limits = Limits(in_flight=5, request_s=30.0, drain_s=30.0, attempts=5, retry_after_s=1.0)
    (record,) = await drive(handler, at(0.0), limits)
    assert record.ok
    assert (record.attempts, record.first_ok, record.first_status, record.first_cell) == (
        3,
        False,
        503,
        "bad",
    )
    assert record.cell == "c"
    assert record.first_over_ms < 1000
    assert record.ttft_ms is not None
    assert record.ttft_ms >= 2000, "two pauses lie before the token, and count"


async def test_attempts_are_bounded() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response({"error": "no"}, status=503)

    limits = Limits(in_flight=5, request_s=30.0, drain_s=30.0, attempts=3, retry_after_s=0.01)
    (record,) = await drive(handler, at(0.0), limits)
    assert (record.ok, record.attempts, record.status) == (False, 3, 503)


async def test_an_attempt_without_a_token_ends_and_a_slow_stream_does_not() -> None:
    asked = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if asked == 1:
            await asyncio.sleep(30)
        return await stream(request, token(), token(), token(), token(), "[DONE]", delay_s=0.4)

    limits = Limits(in_flight=5, request_s=30.0, drain_s=30.0, attempts=2, retry_after_s=0, first_token_s=1.5)
    (record,) = await drive(handler, at(0.0), limits)
    assert record.ok, "the stream goes on past the bound on its first token"
    assert record.attempts == 2
    assert record.first_error.startswith("no first token")
    assert record.e2e_ms >= 1500 + 1600


async def test_what_holds_the_driver_up_counts_as_waiting() -> None:
    """Latency from the moment of sending would leave out what a stalled sender cost its clients."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, token(), "[DONE]")

    async with serving(handler) as target:
        driver = Driver(target, SystemClock(), QUICK, seed=1)
        running = asyncio.create_task(driver.run(at(0.0, 0.5)))
        await asyncio.sleep(0.05)
        time.sleep(1.2)  # noqa: ASYNC251  the whole process stands still
        records = await running
    late = records[-1]
    assert late.late_ms >= 300
    assert late.ttft_ms is not None
    assert late.ttft_ms >= late.late_ms
    assert late.due_s == pytest.approx(0.5, abs=0.001)
