"""Where an engine is asked for its health, by its kind and while that is not known."""

from __future__ import annotations

from headrace_agent.collectors.app.endpoints import ENDPOINTS, HealthPath


class Engine:
    """What is known of an engine's kind."""

    def __init__(self, kind: str = "") -> None:
        self.kind = kind
        self.path = HealthPath(lambda: self.kind)


def test_a_known_kind_has_its_own() -> None:
    assert Engine("vllm").path.current == "/health"
    assert Engine("triton").path.current == "/v2/health/ready"


def test_sglang_is_not_asked_to_generate_ten_times_a_second() -> None:
    path = Engine("sglang").path
    assert path.current != "/health"
    assert path.elsewhere("/v1/models", 404) is None
    assert ENDPOINTS["sglang"].deep_health == "/health"


def test_an_unknown_kind_is_looked_for_once_round() -> None:
    """That a path is not there is no word of the engine's; that none is, is one."""
    path = Engine().path
    assert path.current == "/health"
    assert path.elsewhere("/health", 404) == path.current == "/v2/health/ready"
    assert path.elsewhere("/v2/health/ready", 404) == path.current == "/health/ready"
    assert path.elsewhere("/health/ready", 404) is None
    assert path.current == "/health/ready"


def test_any_other_answer_settles_it() -> None:
    for status in (200, 401, 500, 503):
        path = Engine().path
        assert path.elsewhere("/health", status) is None
        assert path.elsewhere("/health", 404) is None, "it was there a moment ago"


def test_a_kind_that_becomes_known_changes_the_path() -> None:
    engine = Engine()
    assert engine.path.current == "/health"
    engine.kind = "sglang"
    assert engine.path.current == "/v1/models"
    engine.kind = "vllm"
    assert engine.path.current == "/health"


def test_an_answer_to_an_older_question_says_nothing_of_the_new_path() -> None:
    """The kind may become known while a question is open."""
    engine = Engine()
    assert engine.path.current == "/health"
    engine.kind = "triton"
    assert engine.path.elsewhere("/health", 404) == "/v2/health/ready"
    assert engine.path.current == "/v2/health/ready"
