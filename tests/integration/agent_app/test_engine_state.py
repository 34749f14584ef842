"""Life and death of an engine as the collector sees it over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace_agent.collectors.app.health import start, stuck
from headrace_agent.collectors.readings import EngineState, Model, Status
from headrace_shared.clock import SystemClock
from tests.integration.agent_app.collecting import collecting, fast
from tests.integration.agent_app.fake_engine import fake_engine
from tests.unit.agent.collectors.app.engine_pages import vllm_page

SERVED = vllm_page(responses={"2xx": 5}, started_at=1.0)
STILL = vllm_page(running=3, responses={"2xx": 5}) + b'vllm:generation_tokens_total{engine="0"} 100\n'
"""It has served, and says that requests run."""


async def test_healthy_engine_serves_after_its_warm_up() -> None:
    async with fake_engine() as engine, collecting(engine.url) as seen:
        await seen.until_state(EngineState.SERVING)
        assert seen.kinds == ["loading", "serving"]
        assert engine.asked["/v1/completions"] == 1
        assert seen.collector.first_seen.is_set()
        reading = seen.reading
        assert reading.facts.kind == "vllm"
        assert reading.facts.version == "0.32.0"
        assert reading.facts.models == (Model("tiny", 4096),)
        assert reading.serving_since is not None
        assert seen.times[0] < reading.serving_since <= seen.times[-1]


async def test_warm_up_is_a_gate() -> None:
    """Health alone makes no engine SERVING; what the warm-up lacks is said."""
    async with fake_engine() as engine:
        engine.completion = 503
        async with collecting(engine.url) as seen:
            await seen.until(lambda: engine.asked.get("/v1/completions", 0) >= 2)
            assert seen.reading.state is EngineState.LOADING
            assert "warm-up: POST /v1/completions answered 503 (not yet)" in seen.reading.source.detail
            engine.completion = 200
            await seen.until_state(EngineState.SERVING)
            assert "warm-up" not in seen.reading.source.detail


async def test_warm_up_is_no_signal() -> None:
    """The first completion of a cold engine is slow; it says nothing of the requests to come."""
    async with fake_engine() as engine:
        slow = {"0.1": 0, "1.0": 0, "+Inf": 1}
        engine.page_after_completion = vllm_page(ttft=slow, responses={"2xx": 1})
        async with collecting(engine.url) as seen:
            await seen.until_state(EngineState.SERVING)
            pages = engine.asked["/metrics"]
            await seen.until(lambda: engine.asked["/metrics"] >= pages + 3)
            assert seen.reading.signals.keys() == {"queue_depth", "kv_fill"}


async def test_a_page_from_before_the_warm_up_that_comes_after_it_is_no_base() -> None:
    """Else what the warm-up did would stand between it and the next page."""
    async with fake_engine() as engine:
        slow = {"0.1": 0, "1.0": 0, "+Inf": 1}
        engine.page_after_completion = vllm_page(ttft=slow, responses={"2xx": 1})
        engine.page_s = 0.4
        async with collecting(engine.url) as seen:
            await seen.until_state(EngineState.SERVING)
            pages = engine.asked["/metrics"]
            await seen.until(lambda: engine.asked["/metrics"] >= pages + 3)
            assert seen.reading.signals.keys() <= {"queue_depth", "kv_fill"}


async def test_warm_up_off() -> None:
    async with fake_engine() as engine, collecting(engine.url, fast(warm_up=False)) as seen:
        await seen.until_state(EngineState.SERVING)
        assert "/v1/completions" not in engine.asked


async def test_key_goes_with_the_api_only(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("s3cret\n")
    async with fake_engine() as engine, collecting(engine.url, key_file=key_file) as seen:
        await seen.until_state(EngineState.SERVING)
        assert engine.keys == {"Bearer s3cret"}


async def test_unreadable_key_is_said(tmp_path: Path) -> None:
    async with fake_engine() as engine, collecting(engine.url, key_file=tmp_path / "none") as seen:
        await seen.until(lambda: "api_key_file" in seen.reading.source.detail)
        assert seen.reading.state is EngineState.LOADING


async def test_engine_that_has_served_is_adopted() -> None:
    """An agent's restart must not make its serving engines load again."""
    uptime_s = 120.0
    started_at = SystemClock().wall_ns() / 1e9 - uptime_s
    async with fake_engine() as engine:
        engine.page = vllm_page(responses={"2xx": 5}, started_at=started_at)
        async with collecting(engine.url) as seen:
            await seen.until_state(EngineState.SERVING)
            assert seen.kinds == ["serving"]
            assert "/v1/completions" not in engine.asked
            assert seen.reading.serving_since == pytest.approx(seen.now() - uptime_s, abs=5)
            assert seen.reading.facts.models


@pytest.mark.parametrize("spoilt", ["answer", "cut", "empty"])
async def test_a_serving_engine_is_adopted_although_its_first_pages_cannot_be_had(spoilt: str) -> None:
    """An agent's restart and one bad page must not take a serving engine out."""
    async with fake_engine() as engine:
        engine.page = SERVED
        if spoilt == "answer":
            engine.bad_pages = 4
        else:
            engine.page = b"" if spoilt == "empty" else SERVED[: SERVED.index(b"# TYPE http") + 5]
        async with collecting(engine.url) as seen:
            await seen.until(lambda: engine.asked.get("/metrics", 0) >= 3)
            assert not seen.collector.first_seen.is_set(), "undecided, so nothing is told"
            engine.page = SERVED
            await seen.until_state(EngineState.SERVING)
            assert seen.kinds == ["serving"]
            assert "/v1/completions" not in engine.asked


async def test_an_engine_whose_page_cannot_be_had_at_all_loads_and_warms_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "LOOK_FOR_S", 0.6)
    async with fake_engine() as engine:
        engine.page_status = 500
        async with collecting(engine.url) as seen:
            began = seen.now()
            await seen.until_state(EngineState.SERVING)
            assert seen.kinds == ["loading", "serving"]
            assert seen.times[0] - began > 0.5, "bounded, and not at once"


async def test_an_engine_that_dies_while_it_is_looked_at_is_down() -> None:
    async with fake_engine() as engine:
        engine.page_status = 500
        async with collecting(engine.url) as seen:
            await seen.until(lambda: engine.asked.get("/metrics", 0) >= 2)
            await engine.die()
            await seen.until_state(EngineState.DOWN)
            assert seen.kinds == ["down"]


async def test_death_is_seen_by_the_idle_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any probe the end of the idle connection alone tells, at once."""
    async with fake_engine() as engine:
        engine.page = SERVED
        async with collecting(engine.url, fast(probe_interval_s=10, scrape_interval_s=10)) as seen:
            await seen.until_state(EngineState.SERVING)
            monkeypatch.setattr(seen.collector._probe, "ask", lambda now: None)
            killed_at = seen.now()
            await engine.die()
            await seen.until_state(EngineState.DOWN)
            assert seen.events[-1].cause == "connection closed, reconnect refused"
            assert seen.times[-1] - killed_at < 8.0, "no probe and no page was due before 10 s"
            assert seen.reading.signals == {}
            assert seen.reading.in_flight is None
            assert seen.reading.serving_since is None


async def test_ipv6_death() -> None:
    async with fake_engine("::1") as engine:
        engine.page = SERVED
        async with collecting(engine.url) as seen:
            await seen.until_state(EngineState.SERVING)
            await engine.die()
            await seen.until_state(EngineState.DOWN)


async def test_engine_comes_back() -> None:
    async with fake_engine() as engine:
        engine.page = SERVED
        async with collecting(engine.url) as seen:
            await seen.until_state(EngineState.SERVING)
            await engine.die()
            await seen.until_state(EngineState.DOWN)
            engine.health = 503
            await engine.listen()
            await seen.until_state(EngineState.LOADING)
            engine.health = 200
            await seen.until_state(EngineState.SERVING)
            assert seen.kinds == ["serving", "down", "loading", "serving"]
            assert engine.asked["/v1/completions"] == 1, "a new life has to warm up, whatever its page says"


async def test_not_listening_at_all() -> None:
    async with fake_engine(listening=False) as engine, collecting(engine.url) as seen:
        await seen.until_state(EngineState.DOWN)
        assert seen.events[0].cause.startswith("engine not listening")
        await engine.listen()
        await seen.until_state(EngineState.SERVING)
        assert seen.kinds == ["down", "loading", "serving"]


async def test_unhealthy_from_the_start_is_loading() -> None:
    async with fake_engine() as engine:
        engine.health = 503
        async with collecting(engine.url) as seen:
            await seen.until(lambda: seen.kinds)
            assert (seen.kinds, seen.events[0].cause) == (["loading"], "GET /health answered 503")
            await seen.until(lambda: engine.asked["/health"] > 5)
            assert seen.kinds == ["loading"]
            assert "/v1/completions" not in engine.asked


async def test_unhealthy_while_serving_is_down() -> None:
    """A dead engine core leaves a server that answers 503 for seconds: it must not get requests."""
    async with fake_engine() as engine:
        engine.page = SERVED
        async with collecting(engine.url) as seen:
            await seen.until_state(EngineState.SERVING)
            engine.health = 503
            await seen.until_state(EngineState.DOWN)
            assert seen.events[-1].cause == "GET /health answered 503"


async def test_hang_and_recovery() -> None:
    async with fake_engine() as engine:
        engine.page = SERVED
        async with collecting(engine.url, fast(hung_after_s=1)) as seen:
            await seen.until_state(EngineState.SERVING)
            engine.hanging = {"/health", "/metrics"}
            hung_from = seen.now()
            await seen.until_state(EngineState.HUNG)
            # The last answer may have come a little before.
            assert seen.times[-1] - hung_from >= 0.5
            assert "not answered within 1 s" in seen.events[-1].cause
            await asyncio.sleep(0.3)
            assert engine.at_once == 1, "one probe at a time, however long it takes"
            engine.release()
            await seen.until_state(EngineState.SERVING)
            assert seen.kinds == ["serving", "hung", "serving"]


async def test_an_engine_that_stands_still_and_answers_no_completion_is_hung(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its health endpoint says 200 all the while."""
    for name, seconds in {"LOOK_S": 0.05, "STUCK_AFTER_S": 0.5, "ASK_AGAIN_S": 0.5}.items():
        monkeypatch.setattr(stuck, name, seconds)
    async with fake_engine() as engine:
        engine.page = STILL
        async with collecting(engine.url, fast(warm_up_timeout_s=0.5)) as seen:
            await seen.until_state(EngineState.SERVING)
            engine.hanging = {"/v1/completions"}
            await seen.until_state(EngineState.HUNG)
            assert "nothing has moved for" in seen.events[-1].cause
            assert "POST /v1/completions was not answered within 0.5 s" in seen.events[-1].cause
            probes = engine.asked["/health"]
            await seen.until(lambda: engine.asked["/health"] > probes + 3)
            assert seen.reading.state is EngineState.HUNG
            engine.release()
            await seen.until_state(EngineState.SERVING)
            assert seen.kinds == ["serving", "hung", "serving"]


async def test_an_engine_that_stands_still_is_asked_nothing_where_the_warm_up_is_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, seconds in {"LOOK_S": 0.05, "STUCK_AFTER_S": 0.2}.items():
        monkeypatch.setattr(stuck, name, seconds)
    async with fake_engine() as engine:
        engine.page = STILL
        async with collecting(engine.url, fast(warm_up=False)) as seen:
            await seen.until(lambda: seen.reading.source.status is Status.STALE)
            await asyncio.sleep(0.5)
            assert seen.reading.state is EngineState.SERVING
            assert "/v1/completions" not in engine.asked


async def test_sleep_and_waking() -> None:
    async with fake_engine() as engine:
        engine.page = SERVED
        async with collecting(engine.url) as seen:
            await seen.until_state(EngineState.SERVING)
            engine.page = vllm_page(responses={"2xx": 5}, awake=0)
            await seen.until_state(EngineState.SLEEPING)
            assert "/v1/completions" not in engine.asked
            engine.page = SERVED
            await seen.until_state(EngineState.SERVING)
            assert seen.kinds == ["serving", "sleeping", "serving"]
            assert engine.asked["/v1/completions"] == 1


async def test_sleeping_engine_found_is_asked_nothing() -> None:
    async with fake_engine() as engine:
        engine.page = vllm_page(responses={"2xx": 5}, awake=0)
        async with collecting(engine.url) as seen:
            await seen.until_state(EngineState.SLEEPING)
            await asyncio.sleep(0.2)
            assert seen.kinds == ["sleeping"]
            assert "/v1/completions" not in engine.asked


async def test_tidied_up_connection_is_no_death() -> None:
    """A server may close idle connections; while it accepts new ones it lives."""
    closed = 0

    async def close_soon(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal closed
        closed += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(close_soon, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with collecting(f"http://127.0.0.1:{port}", fast(warm_up=False)) as seen:
            await seen.until_state(EngineState.SERVING)
            await seen.until(lambda: closed > 20)
            assert seen.kinds == ["loading", "serving"]


async def test_what_speaks_no_http_is_not_serving() -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x01\x02 not http\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with collecting(f"http://127.0.0.1:{port}") as seen:
            await seen.until(lambda: seen.kinds)
            assert seen.kinds == ["loading"]
            assert "not an HTTP answer" in seen.events[0].cause
