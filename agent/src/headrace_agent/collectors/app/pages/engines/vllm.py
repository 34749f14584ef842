"""vLLM, 0.6.6 to current.

With data parallelism each rank has its own `engine="N"` series on one page: queues add up, the
fullest KV cache counts.
"""

from __future__ import annotations

from typing import Final

from headrace_agent.collectors.app.pages.engines.generation import response_class
from headrace_agent.collectors.app.pages.mapping import (
    CANCELLED,
    CLIENT_ERRORS,
    OK,
    SERVER_ERRORS,
    THROTTLED,
    Counter,
    Engine,
    Gauge,
    Labels,
)

_NOT_OK_REASONS: Final = {"abort": CANCELLED, "error": SERVER_ERRORS}


def _response_class(labels: Labels) -> str | None:
    return response_class(labels, path="handler", status="status")


def _finish_class(labels: Labels) -> str | None:
    return _NOT_OK_REASONS.get(labels.get("finished_reason", ""), OK)


VLLM: Final = Engine(
    kind="vllm",
    title="vLLM",
    prefixes=("vllm:",),
    queue_depth=(Gauge("vllm:num_requests_waiting"),),
    running=(Gauge("vllm:num_requests_running"),),
    kv_fill=(Gauge("vllm:kv_cache_usage_perc", max), Gauge("vllm:gpu_cache_usage_perc", max)),
    ttft=("vllm:time_to_first_token_seconds",),
    # 0.6.6 has none: client errors are invisible there.
    responses=(
        Counter(
            "http_requests_total",
            _response_class,
            tells=frozenset({OK, CLIENT_ERRORS, SERVER_ERRORS}),
            told_exactly=frozenset({THROTTLED}),
            exact=lambda labels: labels.get("status", "").isdigit(),
        ),
    ),
    finished=(Counter("vllm:request_success_total", _finish_class, tells=frozenset({OK})),),
    prompt_tokens=(Gauge("vllm:prompt_tokens_total"),),
    cached_tokens=(Gauge("vllm:prefix_cache_hits_total"), Gauge("vllm:gpu_prefix_cache_hits_total")),
    generated_tokens=(Gauge("vllm:generation_tokens_total"),),
    # In the newest only; its absence means nothing. Nor does that of the start, which vanishes
    # where several API servers share a page.
    sleep=(Gauge("vllm:engine_sleep_state", min, where={"sleep_state": "awake"}),),
    # Tokens are counted at every step, prompts only once they are done with.
    progress=("vllm:generation_tokens_total", "vllm:prompt_tokens_total"),
    help="start vLLM without --disable-log-stats",
)
