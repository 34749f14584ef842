"""Luck is averaged out, change is followed, and what is restored stands."""

from __future__ import annotations

import numpy as np
import pytest

from headrace_controller.inventory import Fleet
from headrace_controller.pressure.settle import Settled, Settler
from tests.unit.controller.inventory.builders import fleet_of


class Series:
    """One cell at one gateway, fed with a mean ten times a second; smoothed over a second."""

    def __init__(self, window_s: float = 300.0) -> None:
        self.fleet: Fleet = fleet_of("a")
        self.settler = Settler(1, smoothing_s=1.0, window_s=window_s)
        self.smoothed = np.full((1, 1), np.nan)

    def __call__(self, mean: float, at_once: bool = False, known: bool = True) -> Settled:
        if known:
            step = mean - np.nan_to_num(self.smoothed, nan=mean)
            self.smoothed = np.nan_to_num(self.smoothed, nan=mean) + 0.095 * step
        flags = np.array([[known]]), np.array([[at_once]])
        return self.settler.step(self.fleet, self.smoothed, np.array([[mean]]), *flags, 0.1)

    def run(self, means: list[float]) -> list[float]:
        return [float(self(mean).base[0, 0]) for mean in means]


def swinging(about: float, swing: float, seconds: float, seed: int = 1) -> list[float]:
    """A mean that wanders about its place, as that of a queue does."""
    luck, found, away = np.random.default_rng(seed), [], 0.0
    for _ in range(round(seconds * 10)):
        away += -0.05 * away + luck.normal(0, swing * 0.31)
        found.append(about + away)
    return found


def test_a_constant_is_itself() -> None:
    assert Series().run([0.4] * 100) == pytest.approx([0.4] * 100)


def test_luck_is_averaged_out() -> None:
    series, means = Series(), swinging(0.4, 0.01, 200.0)
    series.run(means[:1000])
    settled = series.run(means[1000:])
    assert np.std(settled) < 0.25 * np.std(means[1000:])
    assert settled[-1] == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize("swing", [0.0, 0.01])
@pytest.mark.parametrize("step", [0.3, 0.1, -0.1])
def test_a_step_is_followed_within_seconds(swing: float, step: float) -> None:
    series = Series()
    series.run(swinging(0.4, swing, 100.0))
    after = series.run(swinging(0.4 + step, swing, 8.0, seed=2))
    assert after[-1] == pytest.approx(0.4 + step, abs=0.035)


def test_a_small_lasting_shift_is_followed_in_the_end() -> None:
    series = Series()
    series.run(swinging(0.4, 0.01, 100.0))
    assert series.run(swinging(0.43, 0.01, 60.0, seed=2))[-1] == pytest.approx(0.43, abs=0.015)


def test_a_burst_past_the_band_is_followed_however_lucky_the_times() -> None:
    series = Series()
    series.run(swinging(0.4, 0.1, 100.0))
    assert max(series.run([0.7] * 50)) == pytest.approx(0.7, abs=0.05)


def test_an_emergency_is_taken_at_once() -> None:
    series = Series()
    series.run([0.2] * 100)
    series.smoothed[:] = 0.9
    found = series(0.9, at_once=True)
    assert found.base[0, 0] == 0.9
    assert found.taken[0, 0]


def test_what_is_not_known_changes_nothing() -> None:
    series = Series()
    series.run([0.2] * 100)
    assert series(float("nan"), known=False).base[0, 0] == pytest.approx(0.2)


def test_without_a_window_the_smoothed_pressure_is_in_force() -> None:
    series = Series(window_s=0.0)
    for mean in swinging(0.4, 0.02, 5.0):
        assert series(mean).base[0, 0] == series.smoothed[0, 0]


def test_what_is_restored_stands_against_luck() -> None:
    series = Series()
    series.settler.restore(series.fleet, 0, (0.4,))
    assert series.settler.record(series.fleet, 0) == (0.4,)
    settled = series.run(swinging(0.4, 0.01, 20.0))
    assert max(abs(each - 0.4) for each in settled) < 0.005


def test_a_reused_row_begins_anew() -> None:
    series = Series()
    series.run([0.2] * 100)
    series.fleet.remove("a")
    series.fleet.take_row()
    series.smoothed = np.full((1, 1), np.nan)
    assert series(0.8).base[0, 0] == pytest.approx(0.8)
