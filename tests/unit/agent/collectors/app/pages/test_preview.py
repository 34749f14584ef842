"""What is shown of one page, and of two."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.pages.metrics import MetricsSource
from headrace_agent.collectors.app.pages.preview import SIGNALS, preview
from headrace_agent.collectors.exposition import PageError
from headrace_agent.settings import EngineSettings
from headrace_shared.signals import NAMES
from tests.unit.agent.collectors.app.engine_pages import (
    VLLM_0_6_6,
    VLLM_0_32_0,
    VLLM_0_32_0_BUSY,
    capture,
    vllm_page,
)

EARLY = vllm_page(responses={"2xx": 90, "4xx": 10}, ttft={"0.1": 100, "1.0": 100, "+Inf": 100})
LATE = vllm_page(
    waiting=3, kv=0.4, responses={"2xx": 91, "4xx": 12, "5xx": 1}, ttft={"0.1": 100, "1.0": 104, "+Inf": 104}
)


def test_one_page_counts_from_the_engines_start() -> None:
    shown = preview(capture(VLLM_0_32_0))
    assert shown.kind == "vllm"
    assert shown.signals == {
        "queue_depth": 0.0,
        "ttft_p95_s": pytest.approx(0.240763, abs=1e-6),
        "error_rate": pytest.approx(26 / 143),
        "kv_fill": 0.0,
    }
    assert shown.source == {
        "queue_depth": "vllm:num_requests_waiting",
        "ttft_p95_s": "vllm:time_to_first_token_seconds",
        "error_rate": "http_requests_total",
        "kv_fill": "vllm:kv_cache_usage_perc",
    }
    assert shown.warnings == ()


def test_two_pages_show_what_lies_between_them() -> None:
    shown = preview(EARLY, LATE, 10.0)
    assert shown.signals == {
        "queue_depth": 3.0,
        "ttft_p95_s": pytest.approx(0.955),
        "error_rate": 0.75,
        "kv_fill": 0.4,
    }


@pytest.mark.parametrize("seconds", [None, 0.001, 0.5, 3600.0, 1e9])
def test_the_time_between_two_pages_is_no_part_of_a_share(seconds: float | None) -> None:
    assert preview(EARLY, LATE, seconds) == preview(EARLY, LATE, 10.0)


def test_real_pages_of_which_only_answers_lie_between() -> None:
    """All first tokens were out when the first was read: no sample, no P95."""
    shown = preview(capture(VLLM_0_32_0_BUSY), capture(VLLM_0_32_0), 5.0)
    assert shown.signals["ttft_p95_s"] is None
    assert shown.signals["error_rate"] == 0.0
    assert "ttft_p95_s" not in shown.source


def test_what_is_not_on_the_page_is_none() -> None:
    shown = preview(capture(VLLM_0_6_6))
    assert shown.signals["error_rate"] is None
    assert "error_rate" not in shown.source
    assert shown.warnings == ("families missing: http_requests_total",)


def test_a_restart_between_the_pages_is_said_and_counted_right() -> None:
    after = vllm_page(responses={"2xx": 4, "5xx": 1}, started_at=1.8e9)
    shown = preview(EARLY, after, 60)
    assert shown.signals["error_rate"] == 0.2
    assert "went back" in shown.warnings[0]


def test_two_kinds_are_said() -> None:
    shown = preview(capture(VLLM_0_32_0), capture("sglang_0.5_busy.prom"), 60)
    assert shown.kind == "sglang"
    assert shown.warnings == ("the first page is one of vLLM, the later of SGLang",)


def test_a_page_of_no_engine_has_no_kind() -> None:
    shown = preview(b"node_load1 0.5\n")
    assert shown.kind == ""
    assert shown.signals == dict.fromkeys(SIGNALS)
    assert "no family of an engine" in shown.warnings[0]


def test_a_kind_that_is_not_the_pages() -> None:
    shown = preview(capture(VLLM_0_32_0), kind="tgi")
    assert shown.signals == dict.fromkeys(SIGNALS)
    assert "kind says tgi" in shown.warnings[0]


def test_an_empty_and_a_cut_page_say_so() -> None:
    assert preview(b"").warnings == ("the page is empty",)
    assert "cut short" in preview(vllm_page()[:-3]).warnings[0]


@pytest.mark.parametrize("raw", [b"<html></html>", b"\xff\xfe"])
def test_what_is_no_page_is_an_error(raw: bytes) -> None:
    with pytest.raises(PageError, match=r"HTML|UTF-8"):
        preview(raw)
    with pytest.raises(PageError, match=r"HTML|UTF-8"):
        preview(EARLY, raw)


def test_names_are_the_catalogues() -> None:
    assert set(SIGNALS) <= set(NAMES)


def test_it_shows_what_the_running_agent_takes() -> None:
    source = MetricsSource(EngineSettings())
    source.take(Answer(200, EARLY), 0.0)
    source.take(Answer(200, LATE), 0.5)
    assert preview(EARLY, LATE, 0.5).signals == dict(source.signals(0.5))
