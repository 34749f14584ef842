"""Whose time is up, whom to ask, when to hold everything, and our own lateness."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState, SilenceWatch
from headrace_controller.settings import LifecycleSettings
from tests.unit.controller.inventory.builders import fleet_of, hello

TICK = 0.05


def watch(**fields: Any) -> SilenceWatch:
    return SilenceWatch(LifecycleSettings(ttl_s=0.5, confirm_interval_s=0.5, **fields))


def ready_fleet(*cells: str, now: float = 0.0) -> Fleet:
    fleet = fleet_of(*cells, now=now)
    fleet.state[: fleet.size] = CellState.READY
    return fleet


def test_the_engine_is_asked_after_the_ttl_and_again_at_the_interval() -> None:
    fleet, silence = ready_fleet("a"), watch()
    asked = [n for n in range(1, 41) if silence.scan(fleet, n * TICK).ask.tolist()]
    assert [n * TICK for n in asked] == pytest.approx([0.55, 1.05, 1.55])


def test_policy_fail_gives_up_at_the_ttl_without_asking() -> None:
    fleet, silence = ready_fleet("a"), watch(on_silence="fail")
    assert silence.scan(fleet, 0.5).dead.tolist() == []
    found = silence.scan(fleet, 0.51)
    assert found.dead.tolist() == [0]
    assert found.ask.tolist() == []


@pytest.mark.parametrize("state", [CellState.FAILED, CellState.TERMINATED])
def test_the_silence_of_a_cell_that_is_down_says_nothing(state: CellState) -> None:
    fleet, silence = ready_fleet("a"), watch()
    fleet.state[0] = state
    assert silence.scan(fleet, 9.0).ask.tolist() == []


def test_the_engines_of_an_agent_on_a_planned_leave_are_asked_all_the_same() -> None:
    fleet, silence = ready_fleet("a"), watch()
    fleet.hold_until[0] = 30.0
    assert silence.scan(fleet, 0.5).ask.tolist() == []
    assert silence.scan(fleet, 0.6).ask.tolist() == [0]


def test_without_questions_a_planned_goodbye_puts_the_end_off_to_that_of_its_grace() -> None:
    fleet, silence = ready_fleet("a"), watch(on_silence="fail")
    fleet.hold_until[0] = 30.0
    assert silence.scan(fleet, 30.4).dead.tolist() == []
    assert silence.scan(fleet, 30.6).dead.tolist() == [0]


def test_planned_leaves_raise_no_alarm_however_many_they_are() -> None:
    fleet, _ = outage(9, 9)
    fleet.hold_until[:9] = 30.0
    assert not watch().scan(fleet, 0.6).alarm


@pytest.mark.parametrize("late", [0.2, 0.6, 2.0, 10.0])
def test_after_the_loop_was_late_no_ttl_fires_for_as_long(late: float) -> None:
    fleet, silence = ready_fleet("a"), watch()
    silence.scan(fleet, 0.4)
    now = 0.4 + TICK + late
    assert silence.scan(fleet, now, late).ask.tolist() == []
    assert silence.scan(fleet, now + late * 0.99).ask.tolist() == []
    assert silence.scan(fleet, now + max(late, 0.1) + 0.01).ask.tolist() == [0]


def test_a_beat_read_just_before_a_stall_is_not_held_against_its_agent() -> None:
    fleet, silence = ready_fleet("a"), watch()
    silence.scan(fleet, 1.0)
    fleet.touch("n-a", 1.01)
    assert silence.scan(fleet, 1.66, 0.6).ask.tolist() == []
    fleet.touch("n-a", 1.7)
    assert silence.scan(fleet, 2.1).ask.tolist() == []
    assert silence.scan(fleet, 2.3).ask.tolist() == [0]


def test_a_loop_that_is_always_late_still_notices_the_dead() -> None:
    fleet, silence, now = ready_fleet("a"), watch(), 0.0
    for _ in range(100):
        now += TICK + 0.15
        if silence.scan(fleet, now, 0.15).ask.tolist():
            break
    assert 0.5 < now < 10.0


def test_small_lateness_delays_nothing_for_good() -> None:
    fleet, silence, now = ready_fleet("a"), watch(), 0.0
    while not silence.scan(fleet, now, 0.005).ask.tolist():
        now += TICK
    assert now < 0.7


def outage(cells: int, silent: int) -> tuple[Fleet, list[str]]:
    """A fleet of one-cell nodes of which the first `silent` were heard last at 0, with the
    spread that agents have, and the others are heard now."""
    names = [f"c{number}" for number in range(cells)]
    fleet = ready_fleet(*names)
    for number, name in enumerate(names):
        fleet.touch(f"n-{name}", 0.09 * number / cells if number < silent else 0.6)
    return fleet, names


@pytest.mark.parametrize(("silent", "alarm"), [(1, False), (4, False), (5, True), (9, True)])
def test_self_preservation_begins_above_the_share(silent: int, alarm: bool) -> None:
    fleet, _ = outage(9, silent)
    found = watch(on_silence="fail").scan(fleet, 0.6)
    assert found.alarm is alarm
    assert found.share == pytest.approx(silent / 9)
    assert len(found.dead) == (0 if alarm else silent)
    assert len(found.withheld) == (silent if alarm else 0)


def test_the_first_expiry_of_an_outage_sees_the_whole_of_it() -> None:
    """Agents' last beats lie apart; the first cells to expire must not be lost to that."""
    fleet, _ = outage(9, 9)
    silence, now, dead = watch(on_silence="fail"), 0.4, 0
    while now < 3.0:
        dead += len(silence.scan(fleet, now).dead)
        now += 0.01
    assert dead == 0
    assert silence.alarm


def test_withheld_cells_stay_withheld_past_the_window_and_are_released_with_the_alarm() -> None:
    fleet, names = outage(9, 9)
    silence = watch(on_silence="fail", self_preservation_window_s=1.0)
    for tenth in range(6, 100):
        assert silence.scan(fleet, tenth / 10).dead.tolist() == []
    for name in names[:7]:
        fleet.touch(f"n-{name}", 10.0)
    found = silence.scan(fleet, 10.1)
    assert not found.alarm
    assert found.dead.tolist() == [7, 8]


def test_under_the_alarm_engines_are_still_asked() -> None:
    fleet, _ = outage(9, 9)
    found = watch().scan(fleet, 0.6)
    assert found.alarm
    assert len(found.ask) == 9


@pytest.mark.parametrize(("silent", "at_once"), [(400, 128), (1000, 16)])
def test_a_large_outage_is_asked_about_bit_by_bit_and_all_of_it(silent: int, at_once: int) -> None:
    fleet, _ = outage(1000, silent)
    silence, now, asked = watch(self_preservation_window_s=60.0), 0.6, []
    for _ in range(silent // at_once + 1):
        for number in range(silent, 1000):
            fleet.touch(f"n-c{number}", now)
        found = silence.scan(fleet, now).ask.tolist()
        assert len(found) <= at_once
        asked += found
        now += 0.001
    assert sorted(asked) == list(range(silent))


def test_slow_attrition_is_no_outage() -> None:
    """Cells that have been silent for long are not news, however many they are."""
    names = [f"c{number}" for number in range(9)]
    fleet = ready_fleet(*names)
    silence, now = watch(self_preservation_window_s=2.0), 0.0
    for gone in range(9):
        for _ in range(100):
            now += TICK
            for name in names[gone:]:
                fleet.touch(f"n-{name}", now)
            silence.scan(fleet, now)
    assert not silence.alarm


@pytest.mark.parametrize("cells", [1, 2])
def test_a_fleet_of_one_or_two_is_not_paralysed(cells: int) -> None:
    fleet, _ = outage(cells, cells)
    found = watch(on_silence="fail").scan(fleet, 0.6)
    assert not found.alarm
    assert len(found.dead) == cells


def test_one_dead_host_is_one_failure_however_many_cells_it_had() -> None:
    fleet = Fleet(["g"])
    fleet.register("big", "s", hello("a", "b", "c", "d"), 0.0)
    fleet.register("small", "s", hello("e"), 0.0)
    fleet.state[:5] = CellState.READY
    fleet.touch("small", 0.6)
    found = watch(on_silence="fail").scan(fleet, 0.6)
    assert not found.alarm
    assert found.dead.tolist() == [0, 1, 2, 3]
