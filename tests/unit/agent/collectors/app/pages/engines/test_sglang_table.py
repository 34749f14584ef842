"""The mapping of SGLang's pages: ranks, priorities, responses by status."""

from __future__ import annotations

import pytest

from tests.unit.agent.collectors.app.pages.engines.reading import by_class, figures_of


def test_busy() -> None:
    found = figures_of("sglang", "sglang_0.5_busy.prom")
    assert (found.queue_depth, found.running, found.kv_fill) == (4.0, 12.0, 0.27)
    assert by_class(found.responses) == {
        "ok": 960,
        "client_errors": 30,
        "throttled": 6,
        "server_errors": 4,
    }
    assert {"ok", "client_errors", "throttled", "server_errors"} <= found.tells
    assert by_class(found.finished) == {"ok": 958}
    assert found.has_served
    assert found.missing == ()


def test_queues_of_data_parallel_ranks_add_up_and_those_of_tensor_parallel_ones_do_not() -> None:
    """Two ranks of two: 5 and 0 wait, each said twice; the fullest cache counts."""
    found = figures_of("sglang", "sglang_0.5_dp_attention.prom")
    assert (found.queue_depth, found.running, found.kv_fill) == (5.0, 10.0, 0.62)
    assert found.in_flight == 15


def test_series_of_one_priority_stand_beside_their_sum() -> None:
    page = (
        'sglang:num_queue_reqs{priority="",tp_rank="0"} 9\n'
        'sglang:num_queue_reqs{priority="0",tp_rank="0"} 6\n'
        'sglang:num_queue_reqs{priority="7",tp_rank="0"} 3\n'
    )
    assert figures_of("sglang", page.encode()).queue_depth == 9.0


@pytest.mark.parametrize("label", ["tp_rank", "pp_rank", "moe_ep_rank"])
def test_a_copy_counts_once(label: str) -> None:
    line = 'sglang:num_queue_reqs{{{}="{}"}} {}\n'
    page = "".join(line.format(label, rank, waiting) for rank, waiting in enumerate((4, 4, 3)))
    assert figures_of("sglang", page.encode()).queue_depth == 4.0


def test_nothing_was_asked_yet() -> None:
    """Empty families of an engine that has not worked are no news."""
    found = figures_of("sglang", "sglang_0.5_fresh.prom")
    assert found.queue_depth is None
    assert found.has_served is False
    assert found.missing == ()


def test_older_versions_count_no_responses() -> None:
    page = b"sglang:num_queue_reqs 1\nsglang:num_requests_total 7\n"
    found = figures_of("sglang", page)
    assert found.responses is None
    assert by_class(found.finished) == {"ok": 7}
    assert "sglang:http_responses_total" in found.missing


@pytest.mark.parametrize(
    ("endpoint", "method", "status", "kind"),
    [
        ("/v1/chat/completions", "POST", "200", "ok"),
        ("/generate", "POST", "400", "client_errors"),
        ("/generate", "PUT", "400", None),
        ("/v1/completions", "POST", "429", "throttled"),
        ("/v1/completions", "POST", "499", "cancelled"),
        ("/v1/embeddings", "POST", "503", "server_errors"),
        ("/v1/models", "GET", "401", None),
        ("/health", "GET", "503", None),
        ("/load_lora_adapter", "POST", "400", None),
        ("Unknown", "POST", "404", None),
    ],
)
def test_responses_by_class(endpoint: str, method: str, status: str, kind: str | None) -> None:
    labels = f'endpoint="{endpoint}",method="{method}",status_code="{status}"'
    found = figures_of("sglang", f"sglang:http_responses_total{{{labels}}} 5\n".encode())
    assert by_class(found.responses) == ({kind: 5.0} if kind else {})
