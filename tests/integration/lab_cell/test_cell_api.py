"""A cell answers as vLLM does."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace_lab.engine import EngineParameters
from tests.integration.lab_cell.conftest import Server, eventually, running_cell

SLOW = EngineParameters(decode_base_s=0.05, max_model_len=1024)
SLOWER = EngineParameters(decode_base_s=0.5, max_model_len=1024)
"""So slow that what a busy machine adds is little beside it."""


async def sample(session: aiohttp.ClientSession, cell: Server, name: str, **labels: str) -> float | None:
    async with session.get(f"{cell.url}/metrics") as response:
        text = await response.text()
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            if each.name == name and labels.items() <= each.labels.items():
                return each.value
    return None


async def load(session: aiohttp.ClientSession, cell: Server) -> dict[str, Any]:
    async with session.get(f"{cell.url}/lab/load") as response:
        body: dict[str, Any] = await response.json()
        return body


async def order(session: aiohttp.ClientSession, cell: Server, **body: Any) -> int:
    async with session.post(f"{cell.url}/lab/faults", json=body) as response:
        return response.status


@pytest.mark.parametrize("chat", [False, True])
async def test_a_stream_has_headers_first_then_a_token_at_a_time(
    session: aiohttp.ClientSession, chat: bool
) -> None:
    path = "/v1/chat/completions" if chat else "/v1/completions"
    asked = {"messages": [{"role": "user", "content": "hello"}]} if chat else {"prompt": "hello"}
    body = {"model": "m", **asked, "max_tokens": 4, "stream": True, "stream_options": {"include_usage": True}}
    async with running_cell(engine=SLOWER) as cell:
        started = time.monotonic()
        async with session.post(cell.url + path, json=body) as response:
            headers_s = time.monotonic() - started
            lines, times = [], []
            async for line in response.content:
                if line.strip():
                    lines.append(line.decode().strip())
                    times.append(time.monotonic() - started)
    assert response.status == 200
    assert response.headers["x-headrace-cell"] == "c1"
    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert headers_s < 0.45 <= times[0], "the headers do not wait for the first token"
    assert lines[-1] == "data: [DONE]"
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert events[-1]["usage"]["completion_tokens"] == 4
    choices = [event["choices"][0] for event in events[:-1]]
    texts = [c["delta"].get("content") if chat else c["text"] for c in choices]
    assert len([text for text in texts if text]) == 4
    assert choices[-1]["finish_reason"] == "length"
    assert [c["finish_reason"] for c in choices[:-1]] == [None] * (len(choices) - 1)
    assert times[-1] - times[0] > 1.2, "tokens come one step apart, not in one burst"


async def test_a_whole_answer(session: aiohttp.ClientSession, cell: Server) -> None:
    body = {"model": "m", "prompt": [[1, 2, 3], [4]], "max_tokens": 2, "n": 2}
    async with session.post(f"{cell.url}/v1/completions", json=body) as response:
        answer = await response.json()
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"] == {"prompt_tokens": 8, "completion_tokens": 8, "total_tokens": 16}


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b'{"prompt": "a", "max_tokens": 1024}', 400, "BadRequestError"),
        (json.dumps({"prompt": "x" * 4096, "max_tokens": 1}).encode(), 400, "BadRequestError"),
        (json.dumps({"prompt": [7] * 1020, "max_tokens": 5}).encode(), 400, "BadRequestError"),
        (b'{"prompt": "a", "model": "other"}', 404, "NotFoundError"),
        (b'{"prompt": ', 400, "BadRequestError"),
        (b"\xff\xfe\x00", 400, "BadRequestError"),
        (b"", 400, "BadRequestError"),
    ],
)
async def test_refusals_move_only_the_http_counter(
    session: aiohttp.ClientSession, cell: Server, body: bytes, status: int, kind: str
) -> None:
    async with session.post(f"{cell.url}/v1/completions", data=body) as response:
        answer = await response.json()
        assert response.status == status
        assert response.headers["x-headrace-cell"] == "c1"
    assert answer["error"]["type"] == kind
    assert answer["error"]["code"] == status
    assert await sample(session, cell, "http_requests_total", handler="/v1/completions", status="4xx") == 1
    assert await sample(session, cell, "vllm:e2e_request_latency_seconds_count") == 0
    for reason in ("stop", "length", "abort", "error"):
        assert await sample(session, cell, "vllm:request_success_total", finished_reason=reason) == 0
    assert await sample(session, cell, "vllm:prompt_tokens_total") == 0


async def test_a_prompt_that_just_fits_is_answered(session: aiohttp.ClientSession, cell: Server) -> None:
    body = {"prompt": [7] * 1020, "max_tokens": 4}
    async with session.post(f"{cell.url}/v1/completions", json=body) as response:
        assert response.status == 200


async def test_the_context_error_says_the_limit(session: aiohttp.ClientSession, cell: Server) -> None:
    async with session.post(f"{cell.url}/v1/completions", json={"prompt": [7] * 2000}) as response:
        message = (await response.json())["error"]["message"]
    assert "maximum context length is 1024 tokens" in message


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_aborts_its_request(
    session: aiohttp.ClientSession, stream: bool
) -> None:
    async with running_cell(engine=SLOW) as cell:
        body = {"prompt": "hello", "max_tokens": 1000, "stream": stream}
        asking = asyncio.create_task(
            _ask_and_read(f"{cell.url}/v1/completions", body), name="client that goes away"
        )

        async def runs() -> bool:
            return bool((await load(session, cell))["running"] == 1)

        async def stopped() -> bool:
            return bool((await load(session, cell))["running"] == 0)

        await eventually(runs)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await eventually(stopped)
        assert (await load(session, cell))["kv_blocks_used"] == 0
        assert await sample(session, cell, "vllm:request_success_total", finished_reason="abort") == 1
        assert await sample(session, cell, "http_requests_total", status="5xx") is None


async def _ask_and_read(url: str, body: dict[str, Any]) -> bytes:
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        return await response.read()


async def test_facts_and_unknown_routes(session: aiohttp.ClientSession, cell: Server) -> None:
    async with session.get(f"{cell.url}/v1/models") as response:
        models = await response.json()
    assert models["object"] == "list"
    assert [(m["id"], m["max_model_len"]) for m in models["data"]] == [("m", 1024)]
    async with session.get(f"{cell.url}/version") as response:
        assert await response.json() == {"version": "0.32.0"}
    for path, status in (("/health", 200), ("/ping", 200), ("/nix", 404), ("/v1/completions", 405)):
        async with session.get(cell.url + path) as response:
            assert response.status == status, path
    assert await sample(session, cell, "http_requests_total", handler="/health") is None
    assert await sample(session, cell, "http_requests_total", handler="none", status="4xx") == 2


async def test_while_loading_it_answers_503_or_refuses(session: aiohttp.ClientSession) -> None:
    async def serves() -> bool:
        try:
            async with session.get(f"{cell.url}/health") as response:
                return response.status == 200
        except aiohttp.ClientConnectorError:
            return False

    async with running_cell(loading_s=3.0) as cell:
        async with session.get(f"{cell.url}/health") as response:
            assert response.status == 503
        async with session.post(f"{cell.url}/v1/completions", json={"prompt": "a"}) as response:
            assert response.status == 503
        await eventually(serves)
    async with running_cell(loading_s=3.0, loading_mode="refuse") as cell:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"{cell.url}/health")
        await eventually(serves)


async def test_a_hung_cell_accepts_and_never_answers_until_cleared(
    session: aiohttp.ClientSession, cell: Server
) -> None:
    assert await order(session, cell, fault="hang") == 200
    short = aiohttp.ClientTimeout(total=0.3, sock_connect=0.2)
    for path in ("/health", "/metrics", "/v1/models"):
        with pytest.raises(asyncio.TimeoutError):
            await session.get(cell.url + path, timeout=short)
    with pytest.raises(asyncio.TimeoutError):
        await session.post(f"{cell.url}/v1/completions", json={"prompt": "a"}, timeout=short)
    assert await order(session, cell, fault="clear") == 200
    async with session.post(f"{cell.url}/v1/completions", json={"prompt": "a"}) as response:
        assert response.status == 200


async def test_an_unhealthy_cell_goes_on_serving(session: aiohttp.ClientSession, cell: Server) -> None:
    await order(session, cell, fault="unhealthy")
    async with session.get(f"{cell.url}/health") as response:
        assert response.status == 503
    async with session.post(f"{cell.url}/v1/completions", json={"prompt": "a"}) as response:
        assert response.status == 200


async def test_a_slow_cell_takes_longer(session: aiohttp.ClientSession, cell: Server) -> None:
    async def seconds() -> float:
        started = time.monotonic()
        body = {"prompt": "a", "max_tokens": 20}
        async with session.post(f"{cell.url}/v1/completions", json=body) as response:
            assert response.status == 200
        return time.monotonic() - started

    usual = min([await seconds() for _ in range(5)])
    await order(session, cell, fault="slow", factor=25.0)
    assert usual < 0.95 < await seconds(), "20 tokens of 2 ms, and of 50 ms"


async def test_a_bad_order_is_refused_with_the_choices(session: aiohttp.ClientSession, cell: Server) -> None:
    async with session.post(f"{cell.url}/lab/faults", data=b"{}") as response:
        assert response.status == 400
        assert "hang, slow, unhealthy, exit, clear" in (await response.json())["error"]["message"]


async def test_idle_connections_end_but_not_those_on_which_nothing_was_asked() -> None:
    """An agent watches a silent connection for the engine's death; closing it early looks like one."""
    async with running_cell(keep_alive_s=0.3) as cell:
        silent_reader, silent_writer = await asyncio.open_connection("127.0.0.1", cell.port)
        reader, writer = await asyncio.open_connection("127.0.0.1", cell.port)
        writer.write(b"GET /ping HTTP/1.1\r\nHost: cell\r\n\r\n")
        started = time.monotonic()
        async with asyncio.timeout(30):
            answer = await reader.read()  # to its end
        assert answer.startswith(b"HTTP/1.1 200")
        assert time.monotonic() - started > 0.2
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.6):
                await silent_reader.read(1)
        silent_writer.write(b"GET /ping HTTP/1.1\r\nHost: cell\r\n\r\n")
        async with asyncio.timeout(30):
            assert (await silent_reader.readline()).startswith(b"HTTP/1.1 200")
        for each in (silent_writer, writer):
            each.close()
            await each.wait_closed()


async def test_an_http2_preface_gets_an_error_not_silence(cell: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", cell.port)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    async with asyncio.timeout(30):
        assert (await reader.readline()).startswith(b"HTTP/1")
    writer.close()
    await writer.wait_closed()


async def test_a_refusing_cell_refuses_its_share_whatever_the_length(session: aiohttp.ClientSession) -> None:
    async with running_cell(refuse_share=0.5, seed=1) as cell:
        statuses = []
        for _ in range(60):
            body = {"model": "m", "prompt": "a", "max_tokens": 1}
            async with session.post(f"{cell.url}/v1/completions", json=body) as response:
                statuses.append(response.status)
    assert set(statuses) == {200, 400}
    assert 15 <= statuses.count(400) <= 45
