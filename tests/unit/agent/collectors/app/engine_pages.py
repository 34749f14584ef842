"""Metrics pages for engine tests: real captures by name, and small ones written out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

DATA = Path(__file__).parents[4] / "data" / "engine_pages"

VLLM_0_6_6 = "vllm_0.6.6_synthetic.prom"
VLLM_0_10_2 = "vllm_0.10.2_synthetic.prom"
VLLM_0_32_0 = "vllm_0.32.0_after.prom"
VLLM_0_32_0_BUSY = "vllm_0.32.0_busy.prom"


def capture(name: str) -> bytes:
    """A captured page."""
    return (DATA / name).read_bytes()


def vllm_page(
    *,
    waiting: float = 0,
    running: float = 0,
    kv: float = 0.0,
    ttft: Mapping[str, float] | None = None,
    responses: Mapping[str, float] | None = None,
    awake: float = 1,
    started_at: float = 1.7e9,
    tokens: float | None = None,
) -> bytes:
    """A page as a current vLLM writes it. `ttft`: le -> cumulative count; `responses`: status -> count."""
    lines = [
        f"process_start_time_seconds {started_at}",
        f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}',
        f'vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}',
        f'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {kv}',
        f'vllm:engine_sleep_state{{engine="0",model_name="m",sleep_state="awake"}} {awake}',
        "# TYPE vllm:request_success_total counter",
        "# TYPE vllm:time_to_first_token_seconds histogram",
        "# TYPE http_requests_total counter",
    ]
    if tokens is not None:
        lines.append(f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}')
    for le, count in (ttft or {"0.1": 0, "1.0": 0, "+Inf": 0}).items():
        lines.append(
            f'vllm:time_to_first_token_seconds_bucket{{engine="0",le="{le}",model_name="m"}} {count}'
        )
    for status, count in (responses or {}).items():
        lines.append(
            f'http_requests_total{{handler="/v1/completions",method="POST",status="{status}"}} {count}'
        )
    return ("\n".join(lines) + "\n").encode()
