"""The mapping of trtllm-serve's pages."""

from __future__ import annotations

from tests.unit.agent.collectors.app.pages.engines.reading import by_class, figures_of


def test_busy() -> None:
    found = figures_of("tensorrt-llm", "trtllm_1.2_busy.prom")
    assert (found.queue_depth, found.running, found.kv_fill) == (2.0, 9.0, 0.44)
    assert by_class(found.responses) == {
        "ok": 390,
        "cancelled": 10,
        "client_errors": 12,
        "throttled": 3,
        "server_errors": 5,
    }
    assert found.ttft is not None
    assert found.missing == ()


def test_an_error_without_a_code_is_the_engines_own() -> None:
    page = b'trtllm_request_success_total 1\ntrtllm_request_error_total{http_code=""} 2\n'
    assert by_class(figures_of("tensorrt-llm", page).responses) == {"ok": 1, "server_errors": 2}


def test_versions_that_count_no_errors_have_no_responses() -> None:
    """Successes alone would make an error rate of 0, which nobody measured."""
    found = figures_of("tensorrt-llm", "trtllm_1.0_no_errors.prom")
    assert found.responses is None
    assert by_class(found.finished) == {"ok": 390, "cancelled": 10}


def test_statistics_that_are_switched_off_are_said_once_the_engine_has_served() -> None:
    assert figures_of("tensorrt-llm", "trtllm_1.0_no_errors.prom").missing == (
        "trtllm_request_error_total",
        "trtllm_num_requests_waiting",
        "trtllm_num_requests_running",
        "trtllm_kv_cache_utilization",
    )
    assert figures_of("tensorrt-llm", "trtllm_1.2_fresh.prom").missing == ()


def test_histograms_that_are_switched_off_are_said_as_well() -> None:
    page = (
        b"# TYPE trtllm_time_to_first_token_seconds histogram\n# TYPE trtllm_request_success_total counter\n"
        b"# TYPE trtllm_request_error_total counter\ntrtllm_num_requests_completed_total 40\n"
        b"trtllm_num_requests_waiting 0\ntrtllm_num_requests_running 1\ntrtllm_kv_cache_utilization 0.1\n"
    )
    found = figures_of("tensorrt-llm", page)
    assert found.has_served, "requests were completed, whoever counts them"
    assert found.missing == ("trtllm_time_to_first_token_seconds",)
