"""How `discover` recognises what answers on a port: fake engines of each kind on loopback."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace_agent.commands.discover import gpus
from headrace_agent.commands.discover.found import Host
from headrace_agent.commands.discover.survey import in_thread, survey
from headrace_agent.commands.errors import CommandError
from headrace_shared.clock import SystemClock
from tests.integration.agent_cli.program import Route, http_server, silent_server
from tests.unit.agent.collectors.app.engine_pages import vllm_page

DATA = Path(__file__).parents[2] / "data"


def page(name: str) -> bytes:
    return (DATA / "engine_pages" / name).read_bytes()


def models(owner: str) -> Route:
    return 200, {"data": [{"id": "m", "owned_by": owner, "max_model_len": 4096}]}


@pytest.fixture(autouse=True)
def _no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "from_nvml", lambda: ((), "no NVML library on this host"))


async def look(*servers: dict[str, Route]) -> tuple[Host, list[int], list[str]]:
    """What a survey of servers with these routes finds, their ports, and what it asked of them."""
    asked: list[str] = []
    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(http_server(each, asked)) for each in servers]
        return await survey(ports, SystemClock()), ports, asked


VLLM: dict[str, Route] = {
    "/metrics": (200, vllm_page()),
    "/v1/models": models("vllm"),
    "/version": (200, {"version": "0.10.2"}),
}


async def test_a_vllm_engine() -> None:
    host, (port,), asked = await look(VLLM)
    (placed,) = host.engines
    engine = placed.engine
    assert (engine.candidate.url, engine.kind, engine.version) == (
        f"http://127.0.0.1:{port}",
        "vllm",
        "0.10.2",
    )
    assert [(each.id, each.max_model_len) for each in engine.models] == [("m", 4096)]
    assert engine.shows_metrics
    assert asked == ["GET /metrics", "GET /v1/models", "GET /version"], "a few GETs, one each"


@pytest.mark.parametrize(
    ("kind", "routes", "shows"),
    [
        ("sglang", {"/metrics": (200, page("sglang_0.5_busy.prom")), "/v1/models": models("sglang")}, True),
        ("llamacpp", {"/metrics": (501, b""), "/v1/models": models("llamacpp")}, False),
        ("vllm", {"/v1/models": models("vllm")}, False),
        (
            "tensorrt-llm",
            {
                "/metrics": (200, [{"iter": 1}]),
                "/prometheus/metrics": (200, page("trtllm_1.2_busy.prom")),
                "/v1/models": models("tensorrt_llm"),
            },
            True,
        ),
        (
            "tgi",
            {
                "/metrics": (200, page("tgi_3.0_busy.prom")),
                "/info": (200, {"model_id": "m", "version": "3.0.1", "max_total_tokens": 4096}),
            },
            True,
        ),
        ("vllm", {"/metrics": (200, vllm_page()), "/v1/models": (401, {})}, True),
    ],
)
async def test_other_kinds_and_what_they_show(kind: str, routes: dict[str, Route], shows: bool) -> None:
    host, _, _ = await look(routes)
    (placed,) = host.engines
    assert (placed.engine.kind, placed.engine.shows_metrics) == (kind, shows)
    assert placed.engine.wants_key is (routes.get("/v1/models", (0, b""))[0] == 401)


async def test_triton_whose_metrics_are_on_another_port() -> None:
    api: dict[str, Route] = {"/v2/health/ready": (200, b""), "/v2": (200, {"name": "triton"})}
    host, ports, _ = await look(api, {"/metrics": (200, page("triton_24.12_busy.prom"))})
    (placed,) = host.engines
    assert placed.engine.kind == "triton"
    assert placed.engine.candidate.port == ports[0]
    assert placed.engine.metrics_url == f"http://127.0.0.1:{ports[1]}/metrics"


async def test_an_exporter_tells_the_gpus_where_nvml_does_not() -> None:
    raw = (DATA / "dcgm_pages" / "dcgm_t4.prom").read_bytes()
    host, ports, _ = await look(VLLM, {"/metrics": (200, raw)})
    assert host.dcgm_url == f"http://127.0.0.1:{ports[1]}/metrics"
    assert [(gpu.index, gpu.name) for gpu in host.gpus] == [(0, "Tesla T4")]
    assert host.engines[0].gpus == (host.gpus[0].uuid,), "one engine, one GPU"


async def test_what_is_no_engine_is_let_be() -> None:
    web: dict[str, Route] = {"/": (200, b"<html>")}
    proxy: dict[str, Route] = {"/v1/models": models("openai")}
    agent: dict[str, Route] = {"/metrics": (200, b"headrace_agent_connected 1\n")}
    host, ports, asked = await look(web, proxy, agent)
    assert host.engines == ()
    assert any(f"port {ports[1]} lists models" in note for note in host.notes)
    assert any("no NVML library" in note for note in host.notes)
    assert all(each.startswith("GET ") for each in asked), "nothing is ever posted"


async def test_ports_that_hang_or_refuse_do_not_hold_it_up() -> None:
    async with silent_server() as silent, http_server(VLLM) as port:
        host = await survey((silent, port, 1), SystemClock())
    assert [placed.engine.candidate.port for placed in host.engines] == [port]


async def test_what_hangs_on_this_host_does_not_hang_the_survey() -> None:
    released = threading.Event()
    with pytest.raises(CommandError, match="nvml: no answer within"):
        await in_thread("nvml", released.wait, 0.05)
    released.set()
    with pytest.raises(ZeroDivisionError):
        await in_thread("nvml", lambda: 1 // 0, 5)
