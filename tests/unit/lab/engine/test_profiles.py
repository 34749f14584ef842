"""Profiles follow from data sheets."""

from __future__ import annotations

import pytest

from headrace_lab.engine import Engine, Request
from headrace_lab.engine.profiles import GPUS, MODELS, profile


def test_rates_are_what_the_sheet_allows() -> None:
    engine = profile("h100", "70b-awq").engine
    assert engine.prefill_tokens_per_s == pytest.approx(989.4e12 * 0.40 / (2 * 70.6e9))
    assert engine.decode_base_s == pytest.approx(39.8e9 / (3.35e12 * 0.8) + 0.002)
    assert engine.decode_per_context_token_s == pytest.approx(327_680 / (3.35e12 * 0.8))


def test_more_bandwidth_decodes_faster_and_prefills_alike() -> None:
    h100, h200 = profile("h100", "70b-awq").engine, profile("h200", "70b-awq").engine
    assert h200.decode_base_s < 0.8 * h100.decode_base_s
    assert h200.prefill_tokens_per_s == h100.prefill_tokens_per_s
    assert h200.kv_capacity_tokens > 2 * h100.kv_capacity_tokens


def test_what_does_not_fit_is_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="smaller model"):
        profile("edge", "70b-awq")
    with pytest.raises(ValueError, match="rtx-pro-6000"):
        profile("rtx", "1b")


@pytest.mark.parametrize("gpu", GPUS)
def test_every_gpu_serves_the_small_models(gpu: str) -> None:
    for model in ("8b", "1b"):
        made = profile(gpu, model, max_model_len=8192)
        assert made.engine.kv_capacity_tokens >= 8192
        assert made.gpu.memory_mib == pytest.approx(GPUS[gpu].memory_gb * 1e9 / 2**20, abs=1)
    assert MODELS["1b"].kv_bytes_per_token == 32_768


@pytest.mark.parametrize(("prompt", "queue"), [(100, 0), (700, 0), (700, 3), (5000, 2), (16_000, 0)])
def test_prediction_is_what_happens_when_nothing_else_comes(prompt: int, queue: int) -> None:
    made = profile("rtx-pro-6000", "70b-awq").engine
    engine = Engine(made, seed=1)
    for number in range(queue):
        engine.submit(Request(f"ahead-{number}", 1000, 50), 0.0)
    step = engine.begin_run(0.0)
    now = 0.1 if step is not None else 0.0
    request = Request("mine", prompt, 10)
    expected = now + engine.predict_ttft(request, now)
    engine.cut(now)
    engine.submit(request, now)
    while True:
        if step is not None:
            now = step.started_at + step.duration_s
            outputs = engine.finish_run(step, now)
            if any(output.request_id == "mine" and output.number == 1 for output in outputs):
                break
        step = engine.begin_run(now)
    assert expected == pytest.approx(now, rel=0.05)
