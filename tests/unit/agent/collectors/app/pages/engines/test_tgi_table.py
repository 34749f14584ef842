"""The mapping of TGI's pages."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.app.pages.preview import preview
from tests.unit.agent.collectors.app.engine_pages import capture
from tests.unit.agent.collectors.app.pages.engines.reading import by_class, figures_of


def test_busy() -> None:
    found = figures_of("tgi", "tgi_3.0_busy.prom")
    assert (found.queue_depth, found.running, found.kv_fill) == (3.0, 17.0, None)
    assert by_class(found.responses) == {
        "ok": 1150,
        "client_errors": 24,
        "throttled": 10,
        "server_errors": 6,
        "cancelled": 20,
    }
    assert found.missing == ()


def test_no_other_time_stands_in_for_the_first_token() -> None:
    shown = preview(capture("tgi_3.0_busy.prom"))
    assert shown.signals["ttft_p95_s"] is None
    assert "ttft_p95_s" not in shown.source


def test_failures_that_never_happened_are_a_zero() -> None:
    """The family is on the page from the first failure on."""
    found = figures_of("tgi", "tgi_3.0_no_failure_yet.prom")
    assert by_class(found.responses) == {"ok": 1150}
    assert {"client_errors", "throttled", "server_errors"} <= found.tells


@pytest.mark.parametrize(
    ("err", "kind"),
    [
        ("validation", "client_errors"),
        ("template", "client_errors"),
        ("overloaded", "throttled"),
        ("generation", "server_errors"),
        ("incomplete", "server_errors"),
        ("dropped", "cancelled"),
        ("something new", "server_errors"),
    ],
)
def test_failures_by_class(err: str, kind: str) -> None:
    page = f'tgi_request_failure{{err="{err}"}} 5\n'.encode()
    assert by_class(figures_of("tgi", page).responses) == {kind: 5.0}
