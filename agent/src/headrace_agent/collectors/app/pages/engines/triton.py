"""Triton with the TensorRT-LLM backend; its page is on the metrics port, 8002 by default.

An ensemble counts a request once for itself and once for each model inside it.
"""

from __future__ import annotations

from typing import Final

from headrace_agent.collectors.app.pages.mapping import (
    CANCELLED,
    OK,
    SERVER_ERRORS,
    THROTTLED,
    Counter,
    Engine,
    Gauge,
    Labels,
    Ratio,
)

_REQUESTS: Final = "nv_trt_llm_request_metrics"
_BLOCKS: Final = "nv_trt_llm_kv_cache_block_metrics"
# Models that clients ask, before those that only work for them.
FRONTS: Final = (("ensemble", "tensorrt_llm_bls"), ("tensorrt_llm",))


def _requests(kind: str) -> Gauge:
    return Gauge(_REQUESTS, where={"request_type": kind})


def _blocks(kind: str) -> Gauge:
    return Gauge(_BLOCKS, max, where={"kv_cache_block_type": kind})


def fronts(models: frozenset[str]) -> frozenset[str]:
    """Of the models that a page counts, those that clients ask; all where none is known."""
    return next((found for names in FRONTS if (found := models & set(names))), models)


def _success_class(labels: Labels) -> str | None:
    return OK


def _failure_class(labels: Labels) -> str | None:
    """Triton says why, not whose fault it is: what is neither refused nor given up is its own."""
    return {"REJECTED": THROTTLED, "CANCELED": CANCELLED}.get(labels.get("reason", ""), SERVER_ERRORS)


_SUCCESS: Final = Counter("nv_inference_request_success", _success_class, tells=frozenset({OK}))

TRITON: Final = Engine(
    kind="triton",
    title="Triton with TensorRT-LLM",
    prefixes=("nv_trt_llm_", "nv_inference_request_"),
    queue_depth=(_requests("waiting"),),
    running=(_requests("scheduled"),),
    kv_fill=(_blocks("fraction"), Ratio(_blocks("used"), _blocks("max"))),
    responses=(
        _SUCCESS,
        Counter(
            "nv_inference_request_failure",
            _failure_class,
            tells=frozenset({SERVER_ERRORS}),
            # Older versions give no reasons.
            told_exactly=frozenset({THROTTLED}),
            exact=lambda labels: "reason" in labels,
        ),
    ),
    finished=(_SUCCESS,),
    only=fronts,
    only_label="model",
    started_at=(),
    progress=("nv_inference_request_success", "nv_inference_exec_count", "nv_trt_llm_general_metrics"),
    still_after_s=10.0,
    help="serve the model with the tensorrtllm backend, and point metrics_url at Triton's metrics port",
)
