"""The mapping of llama.cpp's pages."""

from __future__ import annotations

from tests.unit.agent.collectors.app.pages.engines.reading import figures_of


def test_busy() -> None:
    found = figures_of("llamacpp", "llamacpp_b7000_busy.prom")
    assert (found.queue_depth, found.running, found.in_flight) == (6.0, 4.0, 10)
    assert found.kv_fill is None
    assert found.missing == ()


def test_older_versions_tell_how_full_the_cache_is() -> None:
    assert figures_of("llamacpp", "llamacpp_b4000_busy.prom").kv_fill == 0.52


def test_requests_that_nobody_counts_are_absent_and_not_0() -> None:
    found = figures_of("llamacpp", "llamacpp_b7000_busy.prom")
    assert found.responses is None
    assert found.finished is None


def test_tokens_prove_that_it_has_served() -> None:
    assert figures_of("llamacpp", "llamacpp_b7000_busy.prom").has_served is True
    assert figures_of("llamacpp", "llamacpp_b7000_fresh.prom").has_served is False
