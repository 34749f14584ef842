"""The metrics source: what it says of itself, and which figures it gives out."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.pages.metrics import MetricsSource
from headrace_agent.collectors.readings import Status, Totals
from headrace_agent.settings import EngineSettings
from tests.unit.agent.collectors.app.engine_pages import (
    VLLM_0_6_6,
    VLLM_0_10_2,
    VLLM_0_32_0,
    capture,
    vllm_page,
)

SETTINGS = EngineSettings(scrape_interval_s=0.5, ttft_window_s=30)


def source_of(*pages: bytes) -> MetricsSource:
    """A source that has read `pages`, one every half second from 0 on."""
    source = MetricsSource(SETTINGS)
    for step, raw in enumerate(pages):
        source.take(Answer(200, raw), step / 2)
    return source


def test_never_read() -> None:
    reading = MetricsSource(SETTINGS).reading(0.0)
    assert (reading.status, reading.read_at) == (Status.NO_DATA, None)


def test_signals_of_two_pages() -> None:
    source = source_of(
        vllm_page(responses={"2xx": 5}, ttft={"0.1": 5, "1.0": 5, "+Inf": 5}),
        vllm_page(
            waiting=3,
            running=2,
            kv=0.4,
            responses={"2xx": 14, "4xx": 1},
            ttft={"0.1": 5, "1.0": 15, "+Inf": 15},
        ),
    )
    assert source.signals(0.5) == {
        "queue_depth": 3.0,
        "kv_fill": 0.4,
        "error_rate": pytest.approx(0.1),
        "ttft_p95_s": pytest.approx(0.955),
    }
    assert source.in_flight(0.5) == 5
    assert source.totals == Totals(ok=9, client_errors=1, server_errors=0)
    assert source.reading(0.5).status is Status.OK
    assert source.reading(0.5).detail == ""


@pytest.mark.parametrize("name", [VLLM_0_6_6, VLLM_0_10_2, VLLM_0_32_0])
def test_captures_twice_over(name: str) -> None:
    """An idle engine has gauges and no rates: nothing happened between the two pages."""
    source = source_of(capture(name), capture(name))
    assert source.signals(0.5).keys() == {"queue_depth", "kv_fill"}
    assert source.reading(0.5).status is Status.OK
    assert source.kind == "vllm"


def test_0_6_6_says_what_it_lacks() -> None:
    assert source_of(capture(VLLM_0_6_6)).reading(0.0).detail == "families missing: http_requests_total"


def test_old_figures_are_not_given_out() -> None:
    source = source_of(vllm_page(waiting=3))
    assert source.signals(2.5)["queue_depth"] == 3.0
    assert source.reading(2.5).status is Status.OK
    assert source.signals(2.6) == {}
    assert source.in_flight(2.6) is None
    assert source.reading(2.6).status is Status.STALE
    assert source.reading(2.6).read_at == 0.0


def test_failure_is_said_at_once_and_figures_last_while_fresh() -> None:
    source = source_of(vllm_page(waiting=3))
    source.fail("GET /metrics was not answered within 2 s")
    reading = source.reading(1.0)
    assert (reading.status, reading.read_at) == (Status.FAILED, 0.0)
    assert source.signals(1.0)["queue_depth"] == 3.0
    assert source.signals(3.0) == {}


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (Answer(500, b"oops"), Status.FAILED, "answered 500"),
        (Answer(200, b""), Status.NO_DATA, "empty"),
        (Answer(200, b"<html></html>"), Status.FAILED, "HTML"),
        (Answer(200, b"\xff\xfe"), Status.FAILED, "not UTF-8"),
        (Answer(200, b"go_goroutines 5\n"), Status.NO_DATA, "no family of an engine"),
        (Answer(200, b"vllm:num_requests_wai"), Status.FAILED, "cut short"),
        (Answer(200, vllm_page()[:-3]), Status.OK, "cut short"),
    ],
    ids=["500", "empty", "html", "binary", "foreign", "cut to nothing", "cut"],
)
def test_bad_pages(answer: Answer, status: Status, words: str) -> None:
    source = MetricsSource(SETTINGS)
    source.take(answer, 0.0)
    reading = source.reading(0.0)
    assert reading.status is status
    assert words in reading.detail


def test_empty_page_takes_the_figures_back() -> None:
    """Figures of a page before are not what an empty page says."""
    source = source_of(vllm_page(waiting=3), b"")
    assert source.signals(0.5) == {}


def test_cut_page_moves_no_counter() -> None:
    """A series that a cut page lacks comes back with its history, which is not new."""
    whole = vllm_page(responses={"2xx": 1000})
    source = source_of(whole[: whole.index(b"http_requests_total{") + 4], whole, whole)
    assert source.totals == Totals(ok=0, client_errors=0, server_errors=0)


def test_windows_restart_after_the_warm_up() -> None:
    slow = {"0.1": 0, "1.0": 0, "+Inf": 1}
    source = source_of(vllm_page(), vllm_page(ttft=slow, responses={"5xx": 1}))
    assert source.signals(0.5)["ttft_p95_s"] == 1.0
    source.restart_windows()
    source.take(Answer(200, vllm_page(ttft=slow, responses={"5xx": 1})), 1.0)
    assert source.signals(1.0).keys() == {"queue_depth", "kv_fill"}
    assert source.totals == Totals(ok=0, client_errors=0, server_errors=1)


HUGE = (
    'vllm:num_requests_running{{engine="{0}"}} 1.7e308\n'
    'vllm:num_requests_waiting{{engine="{0}"}} 1.7e308\n'
    'http_requests_total{{handler="/v1/completions",status="2xx",rank="{0}"}} 1.7e308\n'
    'http_requests_total{{handler="/v1/completions",status="4xx",rank="{0}"}} 9e15\n'
    'vllm:time_to_first_token_seconds_bucket{{engine="{0}",le="-1.7e308"}} 1.7e308\n'
    'vllm:time_to_first_token_seconds_bucket{{engine="{0}",le="1.7e308"}} 1.7e308\n'
    'vllm:time_to_first_token_seconds_bucket{{engine="{0}",le="+Inf"}} 1.7e308\n'
)


def test_figures_of_two_ranks_that_add_up_to_infinity_are_absent() -> None:
    """They once ended the agent: infinity cannot be rounded."""
    page = "".join(HUGE.format(rank) for rank in range(2)).encode()
    source = source_of(b"# TYPE http_requests_total counter\n# TYPE vllm:x gauge\n" + vllm_page(), page, page)
    assert source.in_flight(1.0) is None
    assert source.signals(1.0).keys() <= {"error_rate"}
    assert source.totals == Totals(ok=0, client_errors=None, server_errors=0)
    assert source.reading(1.0).status is Status.OK
    assert "vllm:num_requests_running has values that cannot be" in source.reading(1.0).detail


def test_an_unchanged_page_still_moves_the_window() -> None:
    """An engine that falls idle must lose its error rate as its last requests grow old."""
    busy = vllm_page(responses={"2xx": 1, "4xx": 1})
    source = source_of(vllm_page(), *[busy] * 70)
    assert source.signals(35.0).keys() == {"queue_depth", "kv_fill"}


BUSY = vllm_page(responses={"2xx": 1, "4xx": 1}, ttft={"0.1": 1, "1.0": 2, "+Inf": 2})


@pytest.mark.parametrize(
    "page",
    [
        b"".join(line for line in BUSY.splitlines(True) if b"_bucket" not in line and b"http_" not in line),
        BUSY[:-1],
    ],
    ids=["series that vanish", "cut short"],
)
def test_pages_that_tell_of_no_requests_still_move_the_windows(page: bytes) -> None:
    """An old P95 must not stand for ever where nothing renews it."""
    source = source_of(vllm_page(), BUSY, *[page] * 10)
    assert {"ttft_p95_s", "error_rate"} <= source.signals(5.5).keys()
    for step in range(12, 80):
        source.take(Answer(200, page), step / 2)
    assert source.signals(39.5).keys() == {"queue_depth", "kv_fill"}


@pytest.mark.parametrize("page", [b"", b"up 1\n"], ids=["empty", "of no engine"])
def test_a_page_of_no_engine_gives_no_figures(page: bytes) -> None:
    source = source_of(vllm_page(), BUSY, page)
    assert source.signals(1.0) == {}
    source.take(Answer(200, BUSY), 1.5)
    assert {"ttft_p95_s", "error_rate"} <= source.signals(1.5).keys()


def test_figures_of_an_engine_slow_to_answer_last_longer() -> None:
    source = MetricsSource(SETTINGS)
    source.take(Answer(200, vllm_page(waiting=3)), 0.0, took_s=1.5)
    assert source.signals(7.4)["queue_depth"] == 3.0
    assert source.signals(7.6) == {}
