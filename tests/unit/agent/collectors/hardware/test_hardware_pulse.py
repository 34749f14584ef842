"""Old figures are told from new ones by the energy counter, at whatever interval the exporter has."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.hardware.pulse import Pulse

READ_S = 0.25


class Exporter:
    """Collects every `interval_s`; is read every 0.25 s on a clock of its own."""

    def __init__(self, interval_s: float, phase_s: float = 0.0) -> None:
        self.pulse = Pulse(READ_S)
        self.interval_s = interval_s
        self.phase_s = phase_s
        self.now = 1000.0
        self.alive = True
        self._energy = 0.0

    def run(self, seconds: float) -> list[bool]:
        """Read on; one verdict (stale or not) per read."""
        verdicts = []
        for _ in range(round(seconds / READ_S)):
            self.now += READ_S
            if self.alive:
                self._energy = float((self.now - self.phase_s) // self.interval_s)
            self.pulse.take({"GPU-1": self._energy}, self.now)
            verdicts.append(self.pulse.stale("GPU-1", self.now))
        return verdicts


def test_a_quick_exporter_is_never_stale_and_is_stale_two_seconds_after_it_stops() -> None:
    exporter = Exporter(0.5)
    assert not any(exporter.run(30))
    assert exporter.pulse.interval_s == pytest.approx(0.5)
    assert not exporter.pulse.slow
    exporter.alive = False
    verdicts = exporter.run(4)
    first_stale = (verdicts.index(True) + 1) * READ_S
    assert 2.0 <= first_stale <= 2.0 + 0.5 + READ_S


def test_figures_younger_than_two_seconds_are_never_stale() -> None:
    exporter = Exporter(0.25)
    exporter.run(10)
    exporter.alive = False
    assert not any(exporter.run(1.75))


@pytest.mark.parametrize("phase_s", [0.0, 3.0, 15.0, 27.0])
def test_a_slow_exporter_is_a_steady_condition_once_it_has_moved(phase_s: float) -> None:
    exporter = Exporter(30.0, phase_s)
    exporter.run(40)  # one move at least was seen
    verdicts = exporter.run(300)
    flips = sum(a != b for a, b in pairwise(verdicts))
    assert flips <= 2, "no flapping between fresh and stale"
    assert not any(verdicts[-400:])
    assert exporter.pulse.slow
    assert exporter.pulse.limit_s == pytest.approx(75.0, abs=1.0)


def test_a_slow_exporter_that_stops_is_stale_after_two_and_a_half_intervals() -> None:
    exporter = Exporter(10.0)
    exporter.run(60)
    exporter.alive = False
    verdicts = exporter.run(60)
    assert 15.0 <= (verdicts.index(True) + 1) * READ_S <= 25.0 + READ_S


def test_an_exporter_made_quicker_is_quick_after_a_few_moves() -> None:
    exporter = Exporter(10.0)
    exporter.run(60)
    exporter.interval_s = 0.5
    exporter.run(30)
    assert not exporter.pulse.slow
    assert exporter.pulse.limit_s == 2.0


def test_an_exporter_made_slower_is_steady_after_its_first_slow_move() -> None:
    exporter = Exporter(0.5)
    exporter.run(10)
    exporter.interval_s = 30.0
    exporter.run(65)
    assert not any(exporter.run(120))


def test_after_its_first_move_a_slow_exporter_is_given_the_usual_interval() -> None:
    """The first stillness was seen from its middle only, so it says too little."""
    exporter = Exporter(30.0, phase_s=1005.0 % 30.0)
    before = exporter.run(5.0)
    assert before[-2], "stale before it moved"
    assert not any(exporter.run(29.0))


def test_an_exporter_at_two_seconds_sharp_is_not_slow() -> None:
    exporter = Exporter(2.0, phase_s=0.1)
    exporter.run(60)
    assert not exporter.pulse.slow


def test_an_outage_is_not_taken_for_the_interval() -> None:
    exporter = Exporter(0.5)
    exporter.run(10)
    exporter.pulse.interrupt()
    exporter.now += 60.0
    exporter.run(0.5)
    assert exporter.pulse.limit_s == 2.0


def test_one_gpu_that_stands_still_among_others_is_stale_alone() -> None:
    pulse = Pulse(READ_S)
    for step in range(20):
        pulse.take({"GPU-1": float(step), "GPU-2": 5.0}, 1000.0 + step * 0.5)
    assert not pulse.stale("GPU-1", 1009.5)
    assert pulse.stale("GPU-2", 1009.5)


def test_without_a_counter_there_is_nothing_to_judge_by() -> None:
    pulse = Pulse(READ_S)
    pulse.take({}, 1000.0)
    assert not pulse.judges("GPU-1")
    assert not pulse.stale("GPU-1", 9999.0)


def test_a_counter_that_starts_again_after_a_driver_reload_has_moved() -> None:
    pulse = Pulse(READ_S)
    pulse.take({"GPU-1": 1e9}, 1000.0)
    pulse.take({"GPU-1": 5.0}, 1002.0)
    assert not pulse.stale("GPU-1", 1003.0)


def test_a_rare_read_is_not_taken_for_a_slow_exporter() -> None:
    pulse = Pulse(10.0)
    for step in range(10):
        pulse.take({"GPU-1": float(step)}, 1000.0 + 10 * step)
    assert not pulse.slow
    assert not pulse.stale("GPU-1", 1099.0)


@given(st.lists(st.tuples(st.floats(0.05, 200.0), st.booleans(), st.booleans()), max_size=60))
def test_the_limit_is_never_below_two_seconds_nor_beyond_five_minutes(
    steps: list[tuple[float, bool, bool]],
) -> None:
    pulse, now, energy = Pulse(READ_S), 0.0, 0.0
    for gap, moves, fails in steps:
        now += gap
        energy += moves
        if fails:
            pulse.interrupt()
        else:
            pulse.take({"GPU-1": energy}, now)
        assert 2.0 <= pulse.limit_s <= 300.0
