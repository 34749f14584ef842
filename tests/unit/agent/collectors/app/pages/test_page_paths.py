"""Where a page is looked for."""

from __future__ import annotations

from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.pages.metrics import MetricsSource
from headrace_agent.collectors.app.pages.paths import PagePaths, origin, page_path
from headrace_agent.collectors.readings import Status
from headrace_agent.settings import EngineSettings
from tests.unit.agent.collectors.app.engine_pages import capture, vllm_page

SETTINGS = EngineSettings()
JSON = Answer(200, b'[{"iter": 1, "numQueuedRequests": 0}]')
TRT = Answer(200, capture("trtllm_1.2_busy.prom"))
SECOND = "/prometheus/metrics"


def asked(source: MetricsSource, *answers: Answer) -> list[str]:
    """The paths at which the source asked for each of the answers."""
    paths = []
    for step, answer in enumerate(answers):
        paths.append(source.path)
        source.take(answer, step / 2)
    return [*paths, source.path]


def test_json_at_the_usual_path_leads_to_the_other_one() -> None:
    """trtllm-serve answers /metrics with JSON."""
    source = MetricsSource(SETTINGS)
    assert asked(source, JSON, TRT, TRT) == ["/metrics", SECOND, SECOND, SECOND]
    assert source.kind == "tensorrt-llm"
    assert source.reading(1.0).status is Status.OK


def test_a_page_that_is_nowhere_is_looked_for_in_turn_and_said_once() -> None:
    """Its trouble must not change from try to try: each change is a line in the log."""
    source = MetricsSource(SETTINGS)
    troubles = []
    for step in range(4):
        source.take(Answer(404, b""), step / 2)
        troubles.append(source.trouble)
    assert set(troubles) == {troubles[0]}
    assert "GET /metrics answered 404" in troubles[0]
    assert "--enable-metrics" in troubles[0]
    assert "metrics_url" in troubles[0]
    assert source.path == "/metrics"


def test_a_failing_engine_is_not_looked_for_elsewhere() -> None:
    source = MetricsSource(SETTINGS)
    assert asked(source, Answer(500, b""), Answer(503, b"")) == ["/metrics"] * 3


def test_a_silent_second_path_is_no_news() -> None:
    source = MetricsSource(SETTINGS)
    source.take(JSON, 0.0)
    before = source.trouble
    assert source.path == SECOND
    source.fail("GET /prometheus/metrics was not answered within 2 s")
    assert source.trouble == before
    assert source.path == "/metrics"


def test_a_page_once_found_stays_where_it_is() -> None:
    source = MetricsSource(SETTINGS)
    assert asked(source, Answer(200, vllm_page()), Answer(200, b"up 1\n")) == ["/metrics"] * 3


def test_a_configured_kind_asks_only_where_it_has_its_page() -> None:
    source = MetricsSource(SETTINGS, "tensorrt-llm")
    assert asked(source, Answer(404, b""), Answer(404, b"")) == [SECOND] * 3
    assert "enable_iter_perf_stats" in source.trouble


def test_a_configured_address_is_the_only_one() -> None:
    source = MetricsSource(SETTINGS, path="/custom")
    assert asked(source, Answer(404, b""), JSON) == ["/custom"] * 3


def test_the_parts_of_a_configured_address() -> None:
    assert page_path(None) == ""
    assert page_path("http://h:8002") == "/metrics"
    assert page_path("http://h:8002/a/b") == "/a/b"
    assert page_path("http://h:8002/a b/\u00e9%20c") == "/a%20b/%C3%A9%20c"
    assert origin("http://[::1]:8002/a/b") == "http://[::1]:8002"


def test_paths_by_kind() -> None:
    assert PagePaths("triton").path == "/metrics"
    assert PagePaths("tensorrt-llm").path == SECOND
    assert PagePaths("tensorrt-llm", "/x").path == "/x"
