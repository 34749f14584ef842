"""A cell's metrics page, held against pages of real engines."""

from __future__ import annotations

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from headrace_lab.cell.metrics import CellMetrics
from headrace_lab.cell.versions import read_dialect
from headrace_lab.engine import Engine, EngineParameters, FinishReason, Request

TTFT_BOUNDS_NOW = (
    "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 "
    "20.0 40.0 80.0 160.0 640.0 2560.0 +Inf"
)
E2E_BOUNDS_V0 = "0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 +Inf"


class Bench:
    """An engine run in virtual time, with its metrics."""

    def __init__(self, version: str) -> None:
        self.now = 0.0
        self.engine = Engine(EngineParameters())
        self.metrics = CellMetrics(
            "m", self.engine.parameters, read_dialect(version), lambda: self.engine.stats(self.now)
        )

    def run(self, steps: int) -> None:
        for _ in range(steps):
            step = self.engine.begin_step(self.now)
            assert step is not None
            self.now += step.duration_s
            for output in self.engine.finish_step(step, self.now):
                self.metrics.token(output)
                if output.finish is not None:
                    self.metrics.finished(output.finish)

    def page(self) -> dict[str, Metric]:
        text = self.metrics.render().decode()
        return {family.name: family for family in text_string_to_metric_families(text)}

    def value(self, name: str, **labels: str) -> float | None:
        for family in self.page().values():
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return None


def bounds(family: Metric) -> str:
    return " ".join(s.labels["le"] for s in family.samples if s.name.endswith("_bucket"))


def test_the_current_page_has_the_current_names_labels_and_bounds() -> None:
    page = Bench("0.32.0").page()
    assert {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"} <= set(page)
    assert "vllm:gpu_cache_usage_perc" not in page
    assert page["vllm:kv_cache_usage_perc"].samples[0].labels == {"engine": "0", "model_name": "m"}
    assert bounds(page["vllm:time_to_first_token_seconds"]) == TTFT_BOUNDS_NOW
    types = {name: family.type for name, family in page.items()}
    assert types["vllm:num_preemptions"] == "counter"
    assert types["vllm:inter_token_latency_seconds"] == "histogram"
    assert "process_start_time_seconds" in page
    states = {s.labels["sleep_state"]: s.value for s in page["vllm:engine_sleep_state"].samples}
    assert states == {"awake": 1.0, "weights_offloaded": 0.0, "discard_all": 0.0}
    assert page["vllm:cache_config_info"].samples[0].labels["num_gpu_blocks"] == "4096"


def test_the_old_page_has_the_old_names_no_engine_label_and_no_http_counter() -> None:
    bench = Bench("0.6.6")
    bench.metrics.http("/v1/completions", "POST", 400, 0.01)
    page = bench.page()
    assert page["vllm:gpu_cache_usage_perc"].samples[0].labels == {"model_name": "m"}
    assert "vllm:kv_cache_usage_perc" not in page
    assert "vllm:time_per_output_token_seconds" in page
    assert "vllm:inter_token_latency_seconds" not in page
    assert bounds(page["vllm:e2e_request_latency_seconds"]) == E2E_BOUNDS_V0
    assert page["vllm:gpu_prefix_cache_hit_rate"].samples[0].value == -1
    assert not [name for name in page if name.startswith("http_")]


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("0.8.5", {"vllm:gpu_cache_usage_perc"}),
        ("0.10.2", {"vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"}),
        ("0.20.0", {"vllm:kv_cache_usage_perc"}),
    ],
)
def test_the_kv_gauge_has_the_name_of_its_time(version: str, names: set[str]) -> None:
    page = Bench(version).page()
    assert {name for name in page if "cache_usage_perc" in name} == names
    assert page["vllm:num_requests_running"].samples[0].labels["engine"] == "0"


def test_a_request_moves_the_figures() -> None:
    bench = Bench("0.32.0")
    bench.engine.submit(Request("a", 1000, 3), bench.now)
    bench.run(1)
    assert bench.value("vllm:num_requests_running") == 1
    assert bench.value("vllm:kv_cache_usage_perc") == pytest.approx(63 / 4096)
    assert bench.value("vllm:time_to_first_token_seconds_count") == 1
    assert bench.value("vllm:request_success_total", finished_reason="length") == 0
    bench.run(2)
    assert bench.value("vllm:num_requests_running") == 0
    assert bench.value("vllm:inter_token_latency_seconds_count") == 2
    assert bench.value("vllm:prompt_tokens_total") == 1000
    assert bench.value("vllm:generation_tokens_total") == 3
    assert bench.value("vllm:request_success_total", finished_reason="length") == 1
    assert bench.value("vllm:e2e_request_latency_seconds_sum") == pytest.approx(bench.now)


def test_an_abort_is_a_finish_of_its_own() -> None:
    bench = Bench("0.32.0")
    bench.engine.submit(Request("a", 1000, 3), bench.now)
    finish = bench.engine.abort("a", 1.0)
    assert finish is not None
    assert finish.reason is FinishReason.ABORT
    bench.metrics.finished(finish)
    assert bench.value("vllm:request_success_total", finished_reason="abort") == 1
    assert bench.value("vllm:request_prefill_time_seconds_count") == 0


def test_http_series_appear_with_their_first_event_by_class_of_status() -> None:
    bench = Bench("0.32.0")
    assert bench.value("http_requests_total") is None
    bench.metrics.http("/v1/completions", "POST", 400, 0.01)
    bench.metrics.http("/v1/completions", "POST", 404, 0.01)
    assert bench.value("http_requests_total", handler="/v1/completions", method="POST", status="4xx") == 2
    assert bench.value("http_requests_total", status="2xx") is None


def test_an_unreadable_version_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.32\.0"):
        read_dialect("latest")
