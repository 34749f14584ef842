"""The agent's pulse, and what systemd asks of it."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from headrace_agent.service import pulse as pulse_module
from headrace_agent.service.notify import notify, watchdog_interval_s
from headrace_agent.service.pulse import REMEMBER_S, STALL_S, Pulse
from tests.support.clock import FakeClock


def beating() -> tuple[Pulse, FakeClock]:
    clock = FakeClock()
    pulse = Pulse(clock)
    pulse.beat(clock.now())
    return pulse, clock


def test_a_loop_that_turns_has_not_stood_still() -> None:
    pulse, clock = beating()
    for _ in range(20):
        pulse.beat(clock.advance(pulse.interval_s + 0.3))
        assert pulse.stalled_s(clock.now()) == 0.0


def test_a_standstill_is_said_and_remembered_for_a_while() -> None:
    pulse, clock = beating()
    with capture_logs() as logs:
        pulse.beat(clock.advance(pulse.interval_s + STALL_S + 1.0))
    assert [line["event"] for line in logs] == ["the event loop stood still"]
    assert pulse.stalled_s(clock.now()) == pytest.approx(STALL_S + 1.0)
    for _ in range(int(REMEMBER_S) + 1):
        pulse.beat(clock.advance(pulse.interval_s))
    assert pulse.stalled_s(clock.now()) == 0.0


def test_a_standstill_that_goes_on_is_seen_by_whoever_can_ask() -> None:
    pulse, clock = beating()
    assert pulse.stalled_s(clock.advance(pulse.interval_s + STALL_S - 0.1)) == 0.0
    assert pulse.stalled_s(clock.advance(0.5)) == pytest.approx(STALL_S + 0.4)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
    ],
)
def test_the_watchdog_is_fed_where_it_watches_this_process(
    environ: dict[str, str], expected: float | None
) -> None:
    assert watchdog_interval_s(environ, pid=7) == expected


def test_the_watchdog_hears_the_pulse_and_often_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulse_module, "notify", said.append)
    watched = Pulse(FakeClock(), watchdog_s=1.5)
    assert watched.interval_s == pytest.approx(0.5)
    assert Pulse(FakeClock(), watchdog_s=60.0).interval_s == 1.0
    watched.beat(1000.0)
    Pulse(FakeClock()).beat(1000.0)
    assert said == ["WATCHDOG=1"]


def test_nobody_to_tell_is_no_error() -> None:
    assert notify("READY=1", {}) is False
    with capture_logs() as logs:
        assert notify("READY=1", {"NOTIFY_SOCKET": "/nonexistent/socket"}) is False
    assert logs[0]["event"] == "systemd could not be told"
