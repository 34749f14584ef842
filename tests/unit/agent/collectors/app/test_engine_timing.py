"""Small decisions about time: ages, back-offs, lateness; and what an error proves."""

from __future__ import annotations

import errno
from itertools import islice, pairwise

import pytest

from headrace_agent.collectors.app.engine import next_scrape
from headrace_agent.collectors.app.health.probe import overslept
from headrace_agent.collectors.app.health.start import serving_since
from headrace_agent.collectors.app.health.warmup import LONGEST_DELAY_S, delays
from headrace_agent.collectors.app.health.watch import next_delay
from headrace_agent.collectors.app.http.dial import endpoint, explain
from headrace_agent.collectors.grid import next_due
from tests.support.clock import FakeClock


def test_age_of_an_adopted_engine_is_its_process_age() -> None:
    clock = FakeClock()
    assert serving_since(clock.wall_ns() / 1e9 - 120, clock) == pytest.approx(clock.now() - 120, abs=1e-3)


@pytest.mark.parametrize("offset_s", [60.0, -1e10, None])
def test_age_that_nobody_believes_is_an_hour(offset_s: float | None) -> None:
    """Started in the future, before computers, or at an unknown time."""
    clock = FakeClock()
    started_at = None if offset_s is None else clock.wall_ns() / 1e9 + offset_s
    assert serving_since(started_at, clock) == clock.now() - 3600


def test_warm_up_backs_off() -> None:
    found = list(islice(delays(), 10))
    assert all(later == min(2 * earlier, LONGEST_DELAY_S) for earlier, later in pairwise(found))
    assert found[-1] == LONGEST_DELAY_S


def test_watch_reconnects_at_once_after_a_long_life_and_ever_slower_after_short_ones() -> None:
    assert next_delay(0.3, lived_s=5.0) == 0.0
    delay, found = 0.0, []
    for _ in range(10):
        delay = next_delay(delay, lived_s=0.001)
        found.append(delay)
    assert found == sorted(found)
    assert 0 < found[0] <= 0.01
    assert found[-1] == 0.5


def test_own_lateness_is_no_silence() -> None:
    assert not overslept(2.01, 2.0)
    assert overslept(5.0, 2.0)


@pytest.mark.parametrize("spent_s", [0.3, 0.6, 2.0])
def test_an_engine_slow_to_show_its_page_is_left_alone_as_long_as_it_took(spent_s: float) -> None:
    """Showing it keeps the engine from its requests: back to back, it would do little else."""
    for step in range(50):
        began = 1000.0 + 0.013 * step
        assert next_scrape(began, began + spent_s, 0.5) >= began + 2 * spent_s - 1e-9


def test_a_quick_engine_is_asked_at_every_interval_and_together_with_the_others() -> None:
    began = next_scrape(1000.123, 1000.125, 0.5)
    for _ in range(20):
        due = next_scrape(began + 0.002, began + 0.01, 0.5)
        assert due - began == pytest.approx(0.5)
        began = due
    assert next_scrape(2000.7, 2000.71, 0.5) == pytest.approx(next_scrape(2001.0, 2001.01, 0.5))


def test_probes_share_a_grid_and_never_come_sooner_than_half_an_interval() -> None:
    for step in range(1000):
        began = 1000.0 + step * 0.0137
        due = next_due(began, 0.1)
        assert 0.05 - 1e-9 <= due - began <= 0.15 + 1e-9
        assert round(due / 0.1) == pytest.approx(due / 0.1)


REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
UNREACHABLE = OSError(errno.ENETUNREACH, "unreachable")
NO_IPV6 = OSError(errno.EADDRNOTAVAIL, "no IPv6 here")


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([REFUSED], REFUSED),
        ([REFUSED, REFUSED], REFUSED),
        ([NO_IPV6, REFUSED], REFUSED),
        ([REFUSED, UNREACHABLE], UNREACHABLE),
        ([UNREACHABLE, REFUSED], UNREACHABLE),
        ([NO_IPV6], NO_IPV6),
        ([NO_IPV6, UNREACHABLE, REFUSED], UNREACHABLE),
    ],
)
def test_what_proves_that_nothing_listens(errors: list[OSError], expected: OSError) -> None:
    assert explain(errors) is expected


def test_a_name_without_addresses_proves_nothing() -> None:
    assert not isinstance(explain([]), ConnectionRefusedError)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:8000/x", ("h", 8000)),
        ("http://h", ("h", 80)),
        ("https://h", ("h", 443)),
        ("https://[::1]:9", ("::1", 9)),
    ],
)
def test_endpoint(url: str, expected: tuple[str, int]) -> None:
    assert endpoint(url) == expected
