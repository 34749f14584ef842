"""Engines of other kinds on loopback, as far as their agent asks them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.unit.agent.collectors.app.engine_pages import capture

Answer = tuple[int, bytes]


def ok(body: Any = None) -> Answer:
    """200 with a JSON body, or bytes as they are."""
    return 200, body if isinstance(body, bytes) else json.dumps(body).encode()


class KindServer:
    """Answers what stands in `answers` by method and path, and 404 to all else.

    `asked` counts by method and path, `bodies` keeps what was last posted to each path.
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.asked: Counter[str] = Counter()
        self.bodies: dict[str, Any] = {}
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, request: web.Request) -> web.Response:
        call = f"{request.method} {request.path}"
        self.asked[call] += 1
        if request.method == "POST":
            self.bodies[request.path] = await request.json()
        status, body = self.answers.get(call, (404, b""))
        return web.Response(status=status, body=body)


@asynccontextmanager
async def kind_server(answers: Mapping[str, Answer]) -> AsyncIterator[KindServer]:
    """A server for the length of a block."""
    server = KindServer(answers)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)


def listed(owner: str, **entry: Any) -> Answer:
    """An OpenAI model list of one."""
    return ok({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": owner, **entry}]})


SGLANG = {
    "GET /health": ok(b""),
    "GET /metrics": ok(capture("sglang_0.5_busy.prom")),
    "GET /v1/models": listed("sglang", root="m", max_model_len=131072),
    "GET /server_info": ok({"version": "0.5.5", "model_path": "m"}),
    "POST /v1/completions": ok({"choices": []}),
}
TENSORRT_LLM = {
    "GET /health": ok(b""),
    "GET /metrics": ok([{"iter": 7, "numQueuedRequests": 2}]),
    "GET /prometheus/metrics": ok(capture("trtllm_1.2_busy.prom")),
    "GET /v1/models": listed("tensorrt_llm"),
    "GET /version": ok({"version": "1.2.0"}),
    "POST /v1/completions": ok({"choices": []}),
}
INDEX = [
    {"name": name, "version": "1", "state": "READY"} for name in ("preprocessing", "tensorrt_llm", "ensemble")
]
TRITON = {
    "GET /v2/health/ready": ok(b""),
    "GET /v2": ok({"name": "triton", "version": "2.53.0"}),
    "POST /v2/repository/index": ok(INDEX),
    "POST /v2/models/ensemble/generate": ok({"text_output": " there"}),
}
TGI = {
    "GET /health": ok(b""),
    "GET /metrics": ok(b""),
    "GET /info": ok({"model_id": "org/m", "max_total_tokens": 8192, "version": "3.0.0"}),
    "POST /generate": ok({"generated_text": " there"}),
}
LLAMACPP = {
    "GET /health": ok({"status": "ok"}),
    "GET /metrics": ok(capture("llamacpp_b7000_fresh.prom")),
    "GET /v1/models": listed("llamacpp", meta={"n_ctx_train": 131072}),
    "GET /props": ok({"build_info": "b7000-abc", "default_generation_settings": {"n_ctx": 16384}}),
    "POST /v1/completions": ok({"choices": []}),
}
