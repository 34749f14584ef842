"""What `read engine` prints of captured pages, to the figure."""

from __future__ import annotations

import pytest

from headrace_agent.commands.errors import CommandError
from headrace_agent.commands.read.engine import KINDS, read_engine
from headrace_shared.signals import NAMES
from tests.unit.agent.collectors.app.engine_pages import (
    VLLM_0_6_6,
    VLLM_0_10_2,
    VLLM_0_32_0,
    capture,
    vllm_page,
)

BUSY = "vllm_0.32.0_busy.prom"


def figures(name: str) -> dict[str, float]:
    signals = read_engine(capture(name)).as_json()["signals"]
    assert list(signals) == list(NAMES)
    return {name: value for name, value in signals.items() if value is not None}


def test_a_page_of_0_6_6_counts_no_errors_and_says_so() -> None:
    outcome = read_engine(capture(VLLM_0_6_6)).as_json()
    assert outcome["kind"] == "vllm"
    assert figures(VLLM_0_6_6) == pytest.approx(
        {"queue_depth": 3, "ttft_p95_s": 0.535714, "kv_fill": 0.427}, rel=1e-3
    )
    assert outcome["source"]["kv_fill"] == "vllm:gpu_cache_usage_perc"
    assert "error_rate" not in outcome["source"]
    assert any("http_requests_total" in warning for warning in outcome["warnings"])


def test_a_page_of_0_10_2_gives_all_four() -> None:
    assert set(figures(VLLM_0_10_2)) == {"queue_depth", "ttft_p95_s", "error_rate", "kv_fill"}
    assert read_engine(capture(VLLM_0_10_2)).source["error_rate"] == "http_requests_total"


def test_a_page_taken_under_load_shows_the_load() -> None:
    busy, after = figures(BUSY), figures(VLLM_0_32_0)
    assert busy["ttft_p95_s"] > 0
    assert busy["kv_fill"] > after["kv_fill"] == 0


def test_of_two_pages_only_what_came_between_counts() -> None:
    slow = {"0.1": 0, "1.0": 100, "+Inf": 100}
    first = vllm_page(ttft=slow, responses={"2xx": 100})
    later = vllm_page(ttft={"0.1": 50, "1.0": 150, "+Inf": 150}, responses={"2xx": 130, "4xx": 10}, waiting=7)
    outcome = read_engine(first, later, 30.0)
    assert outcome.signals["queue_depth"] == 7
    assert outcome.signals["error_rate"] == 0.25
    assert outcome.signals["ttft_p95_s"] == pytest.approx(0.095)
    assert read_engine(later).signals["error_rate"] == pytest.approx(10 / 140), "from the engine's start"


def test_an_unknown_kind_is_an_error_that_lists_the_kinds() -> None:
    with pytest.raises(CommandError, match="'foo'") as raised:
        read_engine(vllm_page(), kind="foo")
    assert all(kind in str(raised.value) for kind in KINDS)
    assert "vllm" in KINDS


def test_a_page_of_no_known_engine_is_of_unknown_kind_and_says_so() -> None:
    outcome = read_engine(b"up 1\n").as_json()
    assert outcome["kind"] == "unknown"
    assert set(outcome["signals"].values()) == {None}
    assert outcome["source"] == {}
    assert outcome["warnings"]
