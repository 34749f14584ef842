"""Engines of every kind over HTTP: each is asked as it wants to be, and costs no more than it must."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_agent.collectors.app.health import deep
from headrace_agent.collectors.readings import EngineFacts, EngineState, Model, Status
from tests.integration.agent_app.collecting import collecting, fast
from tests.integration.agent_app.kind_server import (
    LLAMACPP,
    SGLANG,
    TENSORRT_LLM,
    TGI,
    TRITON,
    kind_server,
    listed,
    ok,
)
from tests.unit.agent.collectors.app.engine_pages import capture, vllm_page


async def test_sglang_is_adopted_and_hardly_asked_to_generate() -> None:
    async with kind_server(SGLANG) as engine, collecting(engine.url) as seen:
        await seen.until_state(EngineState.SERVING)
        await seen.until(lambda: engine.asked["GET /v1/models"] >= 20)
        assert engine.asked["GET /health"] <= 10, "only until its page was read"
        assert seen.kinds == ["serving"]
        await seen.until(
            lambda: seen.reading.facts == EngineFacts("sglang", "0.5.5", (Model("m", 131072),), "/v1/models")
        )
        assert {"queue_depth", "kv_fill"} <= seen.reading.signals.keys()
        assert engine.asked["POST /v1/completions"] == 0, "it has served before"


async def test_sglang_without_its_page_is_known_by_its_model_list() -> None:
    """Otherwise each of its health probes would generate a token for ever."""
    answers = {call: answer for call, answer in SGLANG.items() if call != "GET /metrics"}
    async with kind_server(answers) as engine, collecting(engine.url) as seen:
        await seen.until_state(EngineState.SERVING)
        probes = engine.asked["GET /health"]
        await seen.until(lambda: engine.asked["GET /v1/models"] >= 20)
        assert engine.asked["GET /health"] <= probes + 1
        await seen.until(lambda: seen.reading.facts.kind == "sglang")
        await seen.until(lambda: "--enable-metrics" in seen.reading.source.detail)


async def test_sglang_whose_key_cannot_be_read_is_asked_without_it(tmp_path: Path) -> None:
    """Its cheap question is part of the API; that nobody can ask it must not end the collector."""
    key = tmp_path / "key"
    async with (
        kind_server(SGLANG | {"GET /v1/models": (401, b"")}) as engine,
        collecting(engine.url, key_file=key, kind="sglang") as seen,
    ):
        await seen.until(lambda: seen.events)
        assert seen.kinds == ["loading"]
        assert "GET /v1/models (without a key: api_key_file" in seen.events[0].cause
        assert seen.events[0].cause.endswith("answered 401")
        key.write_text("s3cret")
        engine.answers |= {"GET /v1/models": SGLANG["GET /v1/models"], "POST /v1/completions": ok({})}
        await seen.until_state(EngineState.SERVING)


async def test_what_is_dead_behind_sglangs_server_is_found_by_the_deep_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its server answers all the cheap questions; it serves again once a completion was answered."""
    monkeypatch.setattr(deep, "EVERY_S", 0.2)
    async with kind_server(SGLANG) as engine, collecting(engine.url) as seen:
        await seen.until_state(EngineState.SERVING)
        engine.answers["GET /health"] = (503, b"")
        engine.answers["POST /v1/completions"] = (500, b"")
        await seen.until(lambda: "down" in seen.kinds)
        assert "GET /health answered 503" in seen.events[1].cause
        completions = engine.asked["POST /v1/completions"]
        await seen.until(lambda: engine.asked["POST /v1/completions"] >= completions + 2)
        assert "serving" not in seen.kinds[1:]
        engine.answers |= {"GET /health": ok(b""), "POST /v1/completions": ok({})}
        await seen.until_state(EngineState.SERVING)


async def test_no_deep_question_where_completions_are_not_to_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deep, "EVERY_S", 0.05)
    async with kind_server(SGLANG) as engine, collecting(engine.url, fast(warm_up=False)) as seen:
        await seen.until_state(EngineState.SERVING)
        probes = engine.asked["GET /health"]
        await seen.until(lambda: engine.asked["GET /v1/models"] >= 30)
        assert engine.asked["GET /health"] <= probes + 1


async def test_trtllm_serve_has_its_page_elsewhere() -> None:
    async with kind_server(TENSORRT_LLM) as engine, collecting(engine.url) as seen:
        await seen.until_state(EngineState.SERVING)
        assert seen.kinds == ["serving"]
        await seen.until(
            lambda: seen.reading.facts == EngineFacts("tensorrt-llm", "1.2.0", (Model("m"),), "/health")
        )
        assert seen.reading.source.status is Status.OK
        asked = engine.asked["GET /metrics"]
        pages = engine.asked["GET /prometheus/metrics"]
        await seen.until(lambda: engine.asked["GET /prometheus/metrics"] >= pages + 3)
        assert engine.asked["GET /metrics"] == asked


async def test_triton_has_its_page_on_another_port() -> None:
    """Found serving at once: not one answer of 404 on the way may look like an engine that loads."""
    page = {"GET /metrics": ok(capture("triton_24.12_busy.prom"))}
    async with (
        kind_server(TRITON) as engine,
        kind_server(page) as metrics,
        collecting(engine.url, metrics_url=metrics.url) as seen,
    ):
        await seen.until_state(EngineState.SERVING)
        assert seen.kinds == ["serving"]
        await seen.until(lambda: "ensemble" in [model.id for model in seen.reading.facts.models])
        assert (seen.reading.facts.kind, seen.reading.facts.version) == ("triton", "2.53.0")
        await seen.until(lambda: seen.reading.signals.get("queue_depth") == 5.0)
        assert engine.asked["GET /metrics"] == 0
        assert engine.asked["POST /v2/models/ensemble/generate"] == 0


async def test_triton_that_has_not_served_is_asked_for_a_token() -> None:
    page = {"GET /metrics": ok(b"# TYPE nv_inference_request_success counter\n")}
    async with (
        kind_server(TRITON) as engine,
        kind_server(page) as metrics,
        collecting(engine.url, metrics_url=f"{metrics.url}/metrics") as seen,
    ):
        await seen.until_state(EngineState.SERVING)
        assert seen.kinds == ["loading", "serving"]
        assert engine.bodies["/v2/models/ensemble/generate"]["max_tokens"] == 1


async def test_triton_without_an_address_for_its_page_is_told_what_to_set() -> None:
    async with kind_server(TRITON) as engine, collecting(engine.url) as seen:
        await seen.until_state(EngineState.SERVING)
        await seen.until(lambda: seen.reading.facts.kind == "triton")
        await seen.until(lambda: "metrics_url" in seen.reading.source.detail)


async def test_triton_behind_its_openai_frontend() -> None:
    """Other paths for health, models and completions, the page on the same port."""
    answers = {
        "GET /health/ready": ok(b""),
        "GET /metrics": ok(b"# TYPE nv_inference_request_success counter\n"),
        "GET /v1/models": listed("Triton Inference Server"),
        "POST /v1/completions": ok({}),
    }
    async with kind_server(answers) as engine, collecting(engine.url) as seen:
        await seen.until_state(EngineState.SERVING)
        assert seen.kinds == ["loading", "serving"]
        # Its page tells the kind, and the kind where its health may be: there is nothing there, and it is
        # looked for elsewhere again.
        await seen.until(
            lambda: seen.reading.facts == EngineFacts("triton", "", (Model("m"),), "/health/ready")
        )


async def test_tgi_whose_page_is_empty_before_its_first_request() -> None:
    async with kind_server(TGI) as engine, collecting(engine.url) as seen:
        await seen.until_state(EngineState.SERVING)
        assert engine.bodies["/generate"]["parameters"] == {"max_new_tokens": 1}
        await seen.until(
            lambda: seen.reading.facts == EngineFacts("tgi", "3.0.0", (Model("org/m", 8192),), "/health")
        )
        engine.answers["GET /metrics"] = ok(capture("tgi_3.0_busy.prom"))
        await seen.until(lambda: seen.reading.signals.get("queue_depth") == 3.0)


async def test_llamacpp_loads_and_serves() -> None:
    loading = LLAMACPP | {"GET /health": (503, b"")}
    async with kind_server(loading) as engine, collecting(engine.url) as seen:
        await seen.until(lambda: seen.kinds == ["loading"])
        engine.answers["GET /health"] = ok(b"")
        await seen.until_state(EngineState.SERVING)
        assert engine.asked["POST /v1/completions"] >= 1
        await seen.until(
            lambda: (
                seen.reading.facts == EngineFacts("llamacpp", "b7000-abc", (Model("m", 16384),), "/health")
            )
        )
        assert seen.reading.totals is None
        assert "error_rate" not in seen.reading.signals


async def test_a_server_without_any_health_is_not_called_well() -> None:
    async with kind_server({}) as engine, collecting(engine.url) as seen:
        await seen.until(lambda: seen.kinds == ["loading"])
        assert "answered 404" in seen.events[0].cause
        assert engine.asked["GET /v2/health/ready"] == 1


async def test_a_kind_that_is_not_the_pages_is_said() -> None:
    answers = {"GET /health": ok(b""), "GET /metrics": ok(vllm_page(waiting=2))}
    async with kind_server(answers) as engine, collecting(engine.url, kind="tgi") as seen:
        await seen.until(lambda: "the page is one of vLLM" in seen.reading.source.detail)
        assert seen.reading.source.status is Status.NO_DATA
        assert seen.reading.signals == {}
        assert seen.reading.facts.kind == "tgi"


async def test_missing_families_are_handed_on() -> None:
    answers = {"GET /health": ok(b""), "GET /metrics": ok(b"vllm:num_requests_waiting 1\n")}
    async with kind_server(answers) as engine, collecting(engine.url) as seen:
        await seen.until(lambda: "http_requests_total" in seen.reading.missing)
