"""TensorRT-LLM behind trtllm-serve, whose Prometheus page is at /prometheus/metrics.

Its gauges need `enable_iter_perf_stats: true` and its histograms `return_perf_metrics: true`; what
is switched off is a family without series, or none.
"""

from __future__ import annotations

from typing import Final

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
    class_of_status,
)

_SUCCESS: Final = "trtllm_request_success_total"


def _finish_class(labels: Labels) -> str | None:
    return CANCELLED if labels.get("finished_reason") in ("cancelled", "abort") else OK


def _error_class(labels: Labels) -> str | None:
    """An error without a code is the engine's own."""
    return class_of_status(labels.get("http_code", "")) or SERVER_ERRORS


TENSORRT_LLM: Final = Engine(
    kind="tensorrt-llm",
    title="TensorRT-LLM",
    prefixes=("trtllm_",),
    queue_depth=(Gauge("trtllm_num_requests_waiting"),),
    running=(Gauge("trtllm_num_requests_running"),),
    kv_fill=(Gauge("trtllm_kv_cache_utilization", max),),
    ttft=("trtllm_time_to_first_token_seconds",),
    # Older versions count no errors.
    responses=(
        Counter(_SUCCESS, _finish_class, tells=frozenset({OK})),
        Counter(
            "trtllm_request_error_total",
            _error_class,
            tells=frozenset({CLIENT_ERRORS, THROTTLED, SERVER_ERRORS}),
        ),
    ),
    finished=(Counter(_SUCCESS, _finish_class, tells=frozenset({OK})),),
    progress=(
        "trtllm_generation_tokens_total",
        "trtllm_kv_cache_gen_alloc_blocks_total",
        "trtllm_num_requests_completed_total",
        "trtllm_iteration_latency_seconds",
    ),
    # Statistics of iterations are fetched in batches.
    still_after_s=10.0,
    help="give trtllm-serve enable_iter_perf_stats: true and return_perf_metrics: true",
)
