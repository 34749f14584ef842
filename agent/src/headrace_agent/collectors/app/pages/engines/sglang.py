"""SGLang, which shows a page only with --enable-metrics.

Every scheduler may write its own series, told apart by rank. Ranks of tensor and pipeline
parallelism work on the same requests and repeat the same figures; only data-parallel ranks have
queues of their own. With priorities, series of single ones stand beside their sum.
"""

from __future__ import annotations

from typing import Final

from headrace_agent.collectors.app.pages.engines.generation import response_class
from headrace_agent.collectors.app.pages.mapping import (
    CLIENT_ERRORS,
    OK,
    SERVER_ERRORS,
    THROTTLED,
    Counter,
    Engine,
    Gauge,
    Labels,
)

_COPIES: Final = ("tp_rank", "pp_rank", "moe_ep_rank", "priority")


def _response_class(labels: Labels) -> str | None:
    return response_class(labels, path="endpoint", status="status_code")


def _finish_class(labels: Labels) -> str | None:
    return OK


SGLANG: Final = Engine(
    kind="sglang",
    title="SGLang",
    prefixes=("sglang:",),
    queue_depth=(Gauge("sglang:num_queue_reqs", copies=_COPIES),),
    running=(Gauge("sglang:num_running_reqs", copies=_COPIES),),
    kv_fill=(Gauge("sglang:token_usage", max),),
    ttft=("sglang:time_to_first_token_seconds",),
    # Older versions have none.
    responses=(
        Counter(
            "sglang:http_responses_total",
            _response_class,
            tells=frozenset({OK, CLIENT_ERRORS, THROTTLED, SERVER_ERRORS}),
        ),
    ),
    # Appears with the first request that ends.
    finished=(Counter("sglang:num_requests_total", _finish_class, tells=frozenset({OK}), sparse=True),),
    prompt_tokens=(Gauge("sglang:prompt_tokens_total"),),
    cached_tokens=(Gauge("sglang:cached_tokens_total"),),
    generated_tokens=(Gauge("sglang:generation_tokens_total"),),
    # Tokens of a request are counted when it ends; only the newest count them as they come.
    progress=(
        "sglang:realtime_tokens_total",
        "sglang:generation_tokens_total",
        "sglang:inter_token_latency_seconds_count",
        "sglang:time_to_first_token_seconds_count",
    ),
    # Gauges are written once every 40 steps of decoding, each of which may take 0.1 s and more.
    still_after_s=10.0,
    optional=frozenset({"sleep", "started_at", "finished"}),
    help="start SGLang with --enable-metrics",
)
