"""GuideLLM drives the gateway as it would any OpenAI endpoint. Runs where `guidellm` is on the PATH,
or where GUIDELLM names it; it needs an environment of its own."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import shutil
from pathlib import Path

import pytest

from headrace_lab.demo.observe import Observer, open_session
from headrace_lab.live.layout import Layout, lay_out
from headrace_lab.live.session import Session
from headrace_lab.stack.stack import Stack
from headrace_shared.clock import SystemClock
from tests.e2e.live_lab.small import small_catalogue

GUIDELLM = os.environ.get("GUIDELLM") or shutil.which("guidellm") or ""
REQUESTS = 24
WITHIN_S = 240.0

pytestmark = [
    pytest.mark.skipif(not GUIDELLM, reason="guidellm is not installed (GUIDELLM=/path/to/guidellm)"),
    pytest.mark.timeout(400),
]


def prompts(path: Path) -> Path:
    """Prompts in the form that GuideLLM reads; a file needs no tokenizer from elsewhere."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["prompt", "output_tokens_count"])
        rows.writerows([[f"question {i}: " + "the quick brown fox " * 8, 8] for i in range(REQUESTS)])
    return path


def command(layout: Layout, data: Path, out: Path) -> list[str]:
    fleet = layout.fleet
    # A gateway passes on completions only, so it is not asked for an engine's /health first.
    how = "request_format=/v1/completions,validate_backend=false"
    backend = f"kind=openai_http,target={fleet.gateway_url},model={fleet.model},{how}"
    return [
        *(GUIDELLM, "run", "--backend", backend, "--profile", "kind=constant,rate=8"),
        *("--constraint", f"kind=max_requests,count={REQUESTS}"),
        *("--data", f"kind=csv_file,path={data}", "--output", f"kind=json,path={out}", "--disable-console"),
    ]


async def test_guidellm_measures_the_gateway(tmp_path: Path) -> None:
    catalogue, clock = small_catalogue(), SystemClock()
    layout = lay_out(catalogue.fleet("small"))
    out = tmp_path / "out.json"
    async with Stack(tmp_path, clock) as stack, open_session() as http:
        observer = Observer(http, layout.fleet, clock)
        arm = catalogue.arm("weights")
        session = Session("weights", arm, layout, catalogue.gateway, stack, http, observer, clock, print)
        await session.bring_up()
        process = await asyncio.create_subprocess_exec(
            *command(layout, prompts(tmp_path / "prompts.csv"), out),
            env={**os.environ, "HF_HUB_OFFLINE": "1", "GUIDELLM__MAX_WORKER_PROCESSES": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(WITHIN_S):
                said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, said.decode("utf-8", "replace")[-2000:]
    (benchmark,) = json.loads(out.read_text(encoding="utf-8"))["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert totals["errored"] == 0
    assert totals["successful"] >= REQUESTS // 2
    assert benchmark["metrics"]["time_to_first_token_ms"]["successful"]["median"] > 0
