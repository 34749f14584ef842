"""When beats are due, and how attempts are spaced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.heartbeat.cadence import Backoff, Cadence


def count_beats(cadence: Cadence, start: float, seconds: float, step: float = 0.01) -> tuple[int, int]:
    """Telemetry and liveness beats over a while in which everything is sent at once."""
    telemetry = liveness = 0
    for i in range(round(seconds / step) + 1):
        now = start + i * step
        if cadence.telemetry_due(now):
            telemetry += 1
            cadence.sent(now)
        elif cadence.liveness_due(now):
            liveness += 1
            cadence.sent(now)
    return telemetry, liveness


def test_ten_seconds_at_the_defaults() -> None:
    telemetry, liveness = count_beats(Cadence(0.0), 0.0, 10.0)
    assert telemetry == 20
    assert 75 <= liveness <= 80, "a telemetry beat stands for a sign of life"


def test_missed_beats_are_skipped_not_made_up() -> None:
    cadence = Cadence(0.0)
    assert cadence.telemetry_due(7.3)
    assert not cadence.telemetry_due(7.3)
    assert not cadence.telemetry_due(7.49)
    assert cadence.telemetry_due(7.5)


def test_the_wait_is_until_the_next_beat() -> None:
    cadence = Cadence(100.0)
    assert cadence.wait_s(100.0) == pytest.approx(0.1)
    cadence.sent(100.45)
    assert cadence.wait_s(100.45) == pytest.approx(0.05)
    cadence.telemetry_due(100.5)
    cadence.sent(100.501)
    assert cadence.wait_s(100.501) == pytest.approx(0.099)
    assert cadence.wait_s(101.0) == 0.0


@given(st.floats(0, 1e6), st.floats(0.02, 60))
def test_signs_of_life_are_never_far_apart(sent: float, liveness_s: float) -> None:
    """Whenever something else was sent in between; a controller that hears nothing asks questions."""
    cadence = Cadence(sent, 1e9, liveness_s)
    assert 0.24 <= cadence.wait_s(sent) / liveness_s <= 1.26


def test_beats_that_are_late_do_not_drift() -> None:
    """They stay on the moments that other parts wake up at, however long sending takes."""
    cadence, now, late = Cadence(0.0, 60.0, 0.1), 0.0, 0.004
    for number in range(1, 200):
        now += cadence.wait_s(now) + late
        assert cadence.liveness_due(now)
        assert now == pytest.approx(number * 0.1 + late)
        cadence.sent(now)


def test_a_controllers_wishes_take_effect_at_once() -> None:
    cadence = Cadence(0.0)
    cadence.ask(5000, 1000, 0.0)
    assert (cadence.telemetry_s, cadence.liveness_s) == (5.0, 1.0)
    cadence.ask(200, 50, 0.1)
    assert not cadence.telemetry_due(0.19)
    assert cadence.telemetry_due(0.2)
    assert not cadence.telemetry_due(0.39)
    assert cadence.telemetry_due(0.4)


@pytest.mark.parametrize(
    ("telemetry_ms", "liveness_ms", "expected"),
    [(0, 0, (0.5, 0.1)), (1, 1, (0.1, 0.02)), (2**32 - 1, 2**32 - 1, (60.0, 60.0))],
)
def test_wishes_are_clamped(telemetry_ms: int, liveness_ms: int, expected: tuple[float, float]) -> None:
    """0 means that the controller has no wish; no wish can make the agent flood or fall silent."""
    cadence = Cadence(0.0, 1.0, 1.0)
    cadence.ask(telemetry_ms, liveness_ms, 0.0)
    assert (cadence.telemetry_s, cadence.liveness_s) == expected


def test_backoff_doubles_to_its_limit_and_starts_over() -> None:
    backoff = Backoff(lambda: 0.0)
    assert [backoff.next_s() for _ in range(7)] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    backoff.reset()
    assert backoff.next_s() == 0.1


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=40))
def test_backoff_stays_within_its_bounds(randoms: list[float]) -> None:
    backoff = Backoff(iter(randoms).__next__)
    for _ in randoms:
        assert 0.05 <= backoff.next_s() <= 2.0
