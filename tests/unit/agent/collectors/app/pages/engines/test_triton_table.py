"""The mapping of Triton's pages with the TensorRT-LLM backend."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.app.pages.engines.triton import fronts
from tests.unit.agent.collectors.app.pages.engines.reading import by_class, figures_of


def test_busy() -> None:
    """Requests of the ensemble, not again those of the models inside it."""
    found = figures_of("triton", "triton_24.12_busy.prom")
    assert (found.queue_depth, found.running, found.kv_fill) == (5.0, 14.0, 0.35)
    assert by_class(found.responses) == {"ok": 500, "server_errors": 6, "throttled": 2, "cancelled": 0}
    assert "throttled" in found.tells
    assert "client_errors" not in found.tells
    assert found.ttft is None
    assert found.missing == ()


def test_older_pages_have_blocks_and_no_reasons() -> None:
    found = figures_of("triton", "triton_23.12_busy.prom")
    assert found.kv_fill == pytest.approx(2184 / 6239)
    assert found.queue_depth is None
    assert by_class(found.responses) == {"ok": 500, "server_errors": 8}
    assert found.tells == {"ok", "server_errors"}
    assert found.missing == ('nv_trt_llm_request_metrics{request_type="waiting"}',)


def test_blocks_that_are_none_give_no_fill() -> None:
    line = 'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{}"}} 0\n'
    assert figures_of("triton", (line.format("used") + line.format("max")).encode()).kv_fill is None


@pytest.mark.parametrize(
    ("models", "asked"),
    [
        ({"ensemble", "preprocessing", "tensorrt_llm"}, {"ensemble"}),
        ({"ensemble", "tensorrt_llm_bls", "tensorrt_llm"}, {"ensemble", "tensorrt_llm_bls"}),
        ({"tensorrt_llm", "preprocessing"}, {"tensorrt_llm"}),
        ({"llama"}, {"llama"}),
    ],
)
def test_models_that_clients_ask(models: set[str], asked: set[str]) -> None:
    assert fronts(frozenset(models)) == asked


def test_a_page_without_the_backends_families_says_so() -> None:
    found = figures_of("triton", b'nv_inference_request_success{model="bert"} 4\n')
    assert found.missing[:2] == (
        'nv_trt_llm_request_metrics{request_type="waiting"}',
        'nv_trt_llm_request_metrics{request_type="scheduled"}',
    )
