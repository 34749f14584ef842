"""Virtual time, and what crosses a simulated path."""

from __future__ import annotations

import pytest

from headrace_lab.scenarios.networks import Network
from headrace_lab.sim.calendar import START_S, Calendar, VirtualClock
from headrace_lab.sim.paths import RESEND_S, SitePath


def test_actions_come_in_order_and_see_their_own_time() -> None:
    clock = VirtualClock()
    calendar, seen = Calendar(clock), []
    for at, name in ((3.0, "c"), (1.0, "a"), (1.0, "b"), (9.0, "late")):
        calendar.enter(START_S + at, lambda now, name: seen.append((now - START_S, name)), name)
    calendar.run(START_S + 5.0)
    assert seen == [(1.0, "a"), (1.0, "b"), (3.0, "c")]
    assert clock.now() == START_S + 5.0


def test_what_stops_the_calendar_leaves_the_rest_for_later() -> None:
    clock = VirtualClock()
    calendar, seen = Calendar(clock), []

    def act(now: float, name: str) -> None:
        seen.append(name)
        if name == "a":
            calendar.stop()

    for at, name in enumerate("abc"):
        calendar.enter(START_S + at, act, name)
    calendar.run(START_S + 10)
    assert seen == ["a"]
    calendar.run(START_S + 10)
    assert seen == ["a", "b", "c"]


def network(**path: float | bool) -> Network:
    return Network.model_validate({"paths": {"s": path}})


def test_delays_and_echoes_agree_with_the_plan() -> None:
    path = SitePath(network(rtt_ms=60, jitter_ms=20), "s", 0.0, seed=1)
    delays = [path.delay(float(t)) for t in range(4000)]
    assert sum(delays) / len(delays) == pytest.approx(0.030, rel=0.02)
    for t in range(40):
        estimate = path.echo(4000.0 + t / 2)
    assert estimate.rtt_ms == pytest.approx(60, abs=15)
    assert estimate.jitter_ms == pytest.approx(20, abs=8)
    assert estimate.loss == 0.0


def test_loss_costs_tcp_a_resend_and_pings_an_answer() -> None:
    path = SitePath(network(rtt_ms=10, loss=0.3), "s", 0.0, seed=1)
    delays = [path.delay(0.0) for _ in range(4000)]
    one_way = 1 - 0.7**0.5
    assert sum(each > RESEND_S for each in delays) / 4000 == pytest.approx(one_way, abs=0.03)
    losses = [path.echo(t / 2).loss or 0.0 for t in range(200)]
    assert sum(losses) / 200 == pytest.approx(0.3, abs=0.1)


def test_changes_of_the_network_come_at_their_time() -> None:
    plan = Network.model_validate(
        {"paths": {"s": {"rtt_ms": 10}}, "changes": [{"at_s": 40, "site": "s", "path": {"down": True}}]}
    )
    path = SitePath(plan, "s", 100.0, seed=1)
    assert path.delay(139.0) == 0.005
    assert path.passes
    for t in range(4):
        path.echo(140.0 + t / 2)
    assert not path.passes
    assert path.echo(142.0).rtt_ms is None
    assert path.echo(142.5).loss == 1.0
