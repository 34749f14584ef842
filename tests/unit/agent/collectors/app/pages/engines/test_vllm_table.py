"""The mapping of vLLM's pages, by version."""

from __future__ import annotations

import math

import pytest

from headrace_agent.collectors.app.pages.engines.vllm import VLLM
from headrace_agent.collectors.app.pages.figures import Figures, read
from headrace_agent.collectors.app.pages.page import PageReader
from headrace_shared.signals import NAMES
from tests.unit.agent.collectors.app.engine_pages import (
    VLLM_0_6_6,
    VLLM_0_10_2,
    VLLM_0_32_0,
    VLLM_0_32_0_BUSY,
    capture,
    vllm_page,
)


def figures(raw: bytes) -> Figures:
    return read(VLLM, PageReader(VLLM.wanted).read(raw))


def counts(what: dict[tuple[str, object], float]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for (kind, _), value in what.items():
        sums[kind] = sums.get(kind, 0) + value
    return sums


def by_class(found: Figures, which: str) -> dict[str, float]:
    return counts(dict(getattr(found, which)))


def test_0_6_6() -> None:
    found = figures(capture(VLLM_0_6_6))
    assert (found.queue_depth, found.running, found.kv_fill) == (3.0, 8.0, 0.4271)
    assert found.in_flight == 11
    assert found.responses is None
    assert by_class(found, "finished") == {"ok": 394, "cancelled": 6}
    assert found.awake is None
    assert found.started_at == pytest.approx(1.79595799633e9)
    assert found.missing == ("http_requests_total",)


def test_0_10_2_data_parallel() -> None:
    """Queues of the ranks add up, the fullest cache counts, histograms stay apart."""
    found = figures(capture(VLLM_0_10_2))
    assert (found.queue_depth, found.running, found.kv_fill) == (3.0, 15.0, 0.4271)
    assert found.ttft is not None
    assert len(found.ttft) == 2
    assert all(buckets[math.inf] == 400 for buckets in found.ttft.values())
    assert by_class(found, "responses") == {"ok": 60, "client_errors": 5, "server_errors": 3}
    assert by_class(found, "finished") == {"ok": 96, "cancelled": 24}
    assert found.missing == ()


def test_0_32_0() -> None:
    found = figures(capture(VLLM_0_32_0))
    assert (found.queue_depth, found.running, found.kv_fill) == (0.0, 0.0, 0.0)
    assert by_class(found, "responses") == {"ok": 117, "client_errors": 26}
    assert "throttled" not in found.tells
    assert by_class(found, "finished") == {"ok": 117, "cancelled": 0, "server_errors": 0}
    assert found.ttft is not None
    (buckets,) = found.ttft.values()
    assert len(buckets) == 23
    assert buckets[math.inf] == 117
    assert found.awake is True
    assert found.has_served
    assert found.missing == ()


def test_real_engine_under_load() -> None:
    """A real 0.32 with requests in flight, some of them too long."""
    found = figures(capture(VLLM_0_32_0_BUSY))
    assert (found.queue_depth, found.running, found.in_flight) == (0.0, 21.0, 21)
    assert found.kv_fill == pytest.approx(0.010989, abs=1e-6)
    assert by_class(found, "responses") == {"ok": 96, "client_errors": 26}
    assert found.progress == (7099.0, 17198.0)


def test_every_figure_says_where_it_is_from() -> None:
    assert figures(capture(VLLM_0_6_6)).sources["kv_fill"] == "vllm:gpu_cache_usage_perc"
    found = figures(capture(VLLM_0_32_0)).sources
    assert found["kv_fill"] == "vllm:kv_cache_usage_perc"
    assert found["error_rate"] == "http_requests_total"


def test_sleeping() -> None:
    assert figures(vllm_page(awake=0)).awake is False
    assert figures(vllm_page(awake=1)).awake is True


def test_one_sleeping_rank_is_asleep() -> None:
    line = 'vllm:engine_sleep_state{{engine="{}",sleep_state="awake"}} {}\n'
    assert figures((line.format(0, 1) + line.format(1, 0)).encode()).awake is False


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ('handler="/v1/chat/completions",method="POST",status="2xx"', "ok"),
        ('handler="/v1/embeddings",method="POST",status="200"', "ok"),
        ('handler="/v1/completions",method="POST",status="4xx"', "client_errors"),
        ('handler="/v1/completions",method="POST",status="400"', "client_errors"),
        ('handler="/v1/responses",method="POST",status="429"', "throttled"),
        ('handler="/v1/responses",method="POST",status="499"', "cancelled"),
        ('handler="/v1/completions",method="POST",status="5xx"', "server_errors"),
        ('handler="/v1/messages",method="POST",status="2xx"', "ok"),
        ('handler="/pooling",method="POST",status="2xx"', "ok"),
        ('handler="/v1/models",method="GET",status="2xx"', None),
        ('handler="/v1/models",method="POST",status="4xx"', None),
        ('handler="/v1/responses/{response_id}",method="GET",status="4xx"', None),
        ('handler="/v1/chat/completions/render",method="POST",status="2xx"', None),
        ('handler="/metrics",method="GET",status="5xx"', None),
        ('handler="/v1/unload_lora_adapter",method="POST",status="4xx"', None),
        ('handler="none",method="GET",status="4xx"', None),
        ('handler="/tokenize",method="POST",status="2xx"', None),
        ('handler="/v1/load_lora_adapter",method="POST",status="4xx"', None),
        ('handler="/v1/completions",method="POST",status="3xx"', None),
    ],
)
def test_responses_by_class(labels: str, kind: str | None) -> None:
    found = figures(f"http_requests_total{{{labels}}} 5\n".encode())
    assert by_class(found, "responses") == ({kind: 5.0} if kind else {})


def test_responses_of_no_request_yet() -> None:
    """A family that is there and counts nothing is not a family that is missing."""
    found = figures(vllm_page())
    assert found.responses == {}
    assert not found.has_served


CANNOT_BE = " has values that cannot be; they were left out"


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1.7e308", "9007199254740994"])
def test_impossible_gauges_are_absent_and_said(value: str) -> None:
    found = figures(f"vllm:num_requests_waiting {value}\nvllm:num_requests_running 2\n".encode())
    assert found.queue_depth is None
    assert found.in_flight is None
    assert found.problems == (f"vllm:num_requests_waiting{CANNOT_BE}",)


def test_ranks_whose_sum_cannot_be_are_absent_and_said() -> None:
    """Each may be; together they are more than can be counted."""
    line = 'vllm:num_requests_running{{engine="{}"}} 9007199254740992\n'
    found = figures((line.format(0) + line.format(1)).encode())
    assert found.running is None
    assert found.problems == (f"vllm:num_requests_running{CANNOT_BE}",)


def test_impossible_counters_and_buckets_are_absent_and_said() -> None:
    found = figures(
        vllm_page(responses={"2xx": 1.7e308, "4xx": 3}, ttft={"-1e308": 1, "1e308": 2, "1.0": 1, "+Inf": 2})
    )
    assert by_class(found, "responses") == {"client_errors": 3}
    assert found.ttft is not None
    assert [sorted(buckets) for buckets in found.ttft.values()] == [[1.0, math.inf]]
    assert found.problems == (
        f"vllm:time_to_first_token_seconds{CANNOT_BE}",
        f"http_requests_total{CANNOT_BE}",
    )


@pytest.mark.parametrize(("value", "kv"), [("1.0000001", 1.0), ("42.7", None), ("0", 0.0)])
def test_kv_fill_is_a_fraction(value: str, kv: float | None) -> None:
    found = figures(f"vllm:kv_cache_usage_perc {value}\n".encode())
    assert found.kv_fill == kv
    assert found.problems == (() if kv is not None else (f"vllm:kv_cache_usage_perc{CANNOT_BE}",))


def test_new_name_wins_over_old() -> None:
    page = b"vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.2\n"
    assert figures(page).kv_fill == 0.2


def test_histogram_without_its_last_bucket_is_no_histogram() -> None:
    raw = vllm_page(ttft={"0.1": 1, "1.0": 2})
    assert figures(raw).ttft == {}


def test_missing_families_are_named() -> None:
    found = figures(b"vllm:num_requests_running 1\n")
    assert found.missing == (
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:time_to_first_token_seconds",
        "vllm:request_success_total",
        "http_requests_total",
    )


def test_figures_bear_catalogue_names() -> None:
    assert {"queue_depth", "kv_fill"} <= set(NAMES) & set(Figures.__dataclass_fields__)
