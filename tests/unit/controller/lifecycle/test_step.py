"""What a life keeps besides its state: ramp, hold-down, drains, holds, history, instructions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace_controller.lifecycle import (
    BrokenInvariantError,
    CellLife,
    CellState,
    Event,
    EventKind,
    Forget,
    Instruction,
    NotifyDrained,
    Publish,
    TellAgentDrain,
    TellAgentUndrain,
    begin,
    check,
    step,
)
from headrace_controller.settings import LifecycleSettings

E = EventKind
SETTINGS = LifecycleSettings(
    hold_down_s=1.0, hold_down_max_s=60.0, flap_memory_s=120.0, ramp_s=10.0, history=8
)


class Cell:
    """A life that moves; each call returns the kinds of the instructions."""

    def __init__(self) -> None:
        self.life: CellLife = begin("a", 0.0, "named")
        self.told: tuple[Instruction, ...] = ()

    def __call__(self, now: float, kind: EventKind, **fields: object) -> CellState:
        self.life, self.told = step(self.life, Event(kind, **fields), now, SETTINGS)  # type: ignore[arg-type]
        return self.life.state

    @property
    def kinds(self) -> list[type]:
        return [type(each) for each in self.told]


def ready(now: float = 1.0) -> Cell:
    cell = Cell()
    assert cell(now, E.ENGINE_SERVING, serving_s=3600.0) is CellState.READY
    return cell


def test_a_cell_that_just_began_to_serve_ramps_and_one_that_served_long_does_not() -> None:
    cell = Cell()
    cell(20.0, E.ENGINE_SERVING, serving_s=0.5)
    assert cell.life.ready_since == 19.5
    assert cell.kinds == [Publish]
    assert ready(20.0).life.ready_since == 20.0 - 3600.0


def test_an_adopted_cell_has_no_ramp_whatever_its_agent_can_prove() -> None:
    cell = Cell()
    cell(20.0, E.ADOPTED, serving_s=0.1)
    assert cell.life.ready_since == 10.0


def test_a_failed_cell_waits_for_its_hold_down() -> None:
    cell = ready()
    assert cell(10.0, E.ENGINE_DOWN) is CellState.FAILED
    assert cell.kinds == [Publish]
    assert cell(10.9, E.ENGINE_SERVING) is CellState.FAILED
    assert cell(11.0, E.ENGINE_SERVING) is CellState.READY


def test_the_hold_down_holds_on_the_way_through_loading_too() -> None:
    cell = ready()
    cell(10.0, E.ENGINE_DOWN)
    assert cell(10.1, E.ENGINE_LOADING) is CellState.LOADING
    assert cell(10.5, E.ENGINE_SERVING) is CellState.LOADING
    assert cell(11.0, E.ENGINE_SERVING) is CellState.READY


def test_the_hold_down_doubles_for_a_flapping_cell_up_to_its_limit() -> None:
    cell, now, holds = ready(), 10.0, []
    for _ in range(9):
        cell(now, E.ENGINE_DOWN)
        holds.append(cell.life.hold_down_until - now)
        now = cell.life.hold_down_until
        assert cell(now, E.ENGINE_SERVING) is CellState.READY
        now += 1.0
    assert holds == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_flaps_are_forgotten_after_calm() -> None:
    cell = ready()
    for now in (10.0, 20.0, 30.0):
        cell(now, E.ENGINE_DOWN)
        cell(now + 9.0, E.ENGINE_SERVING)
    assert cell.life.flaps == 3
    cell(39.0 + 121.0, E.ENGINE_DOWN)
    assert cell.life.flaps == 1
    assert cell.life.hold_down_until == 161.0


def test_failing_while_loading_is_no_flap() -> None:
    """A port that opens and closes while an engine starts must not earn a minute's hold-down."""
    cell = Cell()
    for now in (1.0, 2.0, 3.0, 4.0):
        cell(now, E.ENGINE_DOWN)
        cell(now + 0.5, E.ENGINE_LOADING)
    assert cell(5.0, E.ENGINE_SERVING) is CellState.READY


def test_silence_with_a_live_engine_holds_the_weight_with_no_hold_down() -> None:
    cell = ready()
    assert cell(10.0, E.SILENCE_ALIVE) is CellState.READY
    assert cell.life.telemetry_lost
    assert cell.told == ()
    cell(10.5, E.SILENCE_ALIVE)
    assert len([each for each in cell.life.history if each.event is E.SILENCE_ALIVE]) == 1
    cell(11.0, E.HEARD)
    assert not cell.life.telemetry_lost
    assert cell.life.hold_down_until < 0


def test_broken_hardware_comes_back_only_after_a_restart() -> None:
    cell = ready()
    cell(10.0, E.HARDWARE_FATAL)
    assert cell(60.0, E.ENGINE_SERVING, serving_s=3600.0) is CellState.FAILED
    assert cell(60.0, E.ENGINE_SLEEPING) is CellState.FAILED
    cell(61.0, E.ENGINE_DOWN)
    assert cell(62.0, E.ENGINE_SERVING, serving_s=0.1) is CellState.READY


def test_a_restart_that_nobody_saw_shows_in_how_long_the_engine_serves() -> None:
    cell = ready()
    cell(10.0, E.HARDWARE_FATAL)
    assert cell(60.0, E.ENGINE_SERVING, serving_s=30.0) is CellState.READY


def test_a_fault_is_dated_by_when_it_happened_not_by_when_it_was_told() -> None:
    cell = ready()
    cell(100.0, E.HARDWARE_FATAL, age_s=50.0)
    assert cell.life.broken_at == 50.0
    assert cell(200.0, E.ENGINE_SERVING, serving_s=160.0) is CellState.FAILED
    assert cell(200.0, E.ENGINE_SERVING, serving_s=140.0) is CellState.READY


def test_the_newest_of_several_faults_counts() -> None:
    cell = ready()
    cell(100.0, E.HARDWARE_FATAL)
    cell(101.0, E.HARDWARE_FATAL, age_s=60.0)
    assert cell.life.broken_at == 100.0
    cell(150.0, E.HARDWARE_FATAL)
    assert cell.life.broken_at == 150.0


@pytest.mark.parametrize("age_s", [61.0, 3600.0])
def test_a_fault_from_before_the_engines_present_life_is_history(age_s: float) -> None:
    cell = ready()
    before = cell.life
    cell(100.0, E.HARDWARE_FATAL, age_s=age_s, serving_s=60.0)
    assert cell.life is before


def test_a_drain_tells_the_agent_and_at_its_end_whoever_asked() -> None:
    cell = ready()
    asked = {"requested_by": "operator", "target": "ticket 7", "deadline_s": 30.0, "cause": "upgrade"}
    assert cell(10.0, E.DRAIN_ASKED, **asked) is CellState.DRAINING
    assert cell.told == (Publish("a", "upgrade"), TellAgentDrain("a", "upgrade", 30.0))
    assert cell(20.0, E.DRAIN_FINISHED, cause="nothing in flight") is CellState.TERMINATED
    assert cell.told == (NotifyDrained("a", "operator", "ticket 7", "nothing in flight"),)


@pytest.mark.parametrize(
    "end", [E.ENGINE_DOWN, E.DRAIN_DEADLINE, E.WITHDRAWN, E.SILENCE_DEAD, E.HARDWARE_FATAL]
)
def test_whoever_asked_is_told_however_a_drain_ends(end: EventKind) -> None:
    cell = ready()
    cell(10.0, E.DRAIN_ASKED, requested_by="operator")
    assert cell(11.0, end) is CellState.TERMINATED
    assert cell.told == (NotifyDrained("a", "operator", "", end.value),)


def test_a_cancelled_drain_returns_to_full_weight() -> None:
    cell = ready()
    cell(10.0, E.DRAIN_ASKED, requested_by="operator")
    assert cell(12.0, E.DRAIN_CANCELLED, cause="changed my mind") is CellState.READY
    assert cell.life.ready_since == 2.0
    assert cell.kinds == [Publish, TellAgentUndrain, NotifyDrained]


def test_draining_what_does_not_serve_ends_at_once_and_says_so() -> None:
    cell = Cell()
    assert cell(1.0, E.DRAIN_ASKED, requested_by="operator") is CellState.TERMINATED
    (told,) = cell.told
    assert isinstance(told, NotifyDrained)
    assert "LOADING" in told.outcome
    assert cell(2.0, E.DRAIN_CANCELLED) is CellState.LOADING


def test_a_second_drain_replaces_the_first_and_tells_its_asker() -> None:
    cell = ready()
    cell(10.0, E.DRAIN_ASKED, requested_by="operator", deadline_s=10.0)
    cell(11.0, E.DRAIN_ASKED, requested_by="early warning", deadline_s=50.0)
    assert cell.life.drain is not None
    assert cell.life.drain.deadline == 61.0
    assert cell.kinds == [TellAgentDrain, NotifyDrained]


def test_sleep_drains_and_waking_returns() -> None:
    cell = ready()
    assert cell(10.0, E.ENGINE_SLEEPING) is CellState.DRAINING
    assert cell.kinds == [Publish]
    assert cell(12.0, E.ENGINE_SERVING, serving_s=1.0) is CellState.READY
    assert cell.life.ready_since == 11.0


def test_cancelling_a_drain_of_a_sleeping_engine_leaves_it_out_until_it_wakes() -> None:
    cell = ready()
    cell(10.0, E.DRAIN_ASKED, requested_by="operator")
    assert cell(11.0, E.DRAIN_CANCELLED, requested_by="engine") is CellState.DRAINING
    assert cell.life.asleep
    assert cell(12.0, E.ENGINE_SERVING) is CellState.READY


def test_a_planned_goodbye_outlasts_the_words_of_a_young_agent() -> None:
    """An upgraded agent calls its engine LOADING until it has proved it: that moves no traffic."""
    cell = ready()
    cell(10.0, E.GOODBYE_PLANNED, grace_s=30.0)
    assert cell.life.held
    cell(12.0, E.HEARD)
    assert cell(12.5, E.ENGINE_LOADING) is CellState.READY
    cell(14.0, E.ENGINE_SERVING)
    assert not cell.life.held
    assert cell(15.0, E.ENGINE_LOADING) is CellState.LOADING


def test_after_the_grace_a_loading_engine_is_believed() -> None:
    cell = ready()
    cell(10.0, E.GOODBYE_PLANNED, grace_s=5.0)
    assert cell(16.0, E.ENGINE_LOADING) is CellState.LOADING


def test_forgetting_is_an_instruction() -> None:
    cell = Cell()
    cell(1.0, E.ENGINE_DOWN)
    cell(700.0, E.RETENTION_OVER)
    assert cell.told == (Forget("a"),)


def test_history_is_bounded_and_its_newest_entries_stay() -> None:
    cell = ready()
    for now in range(10, 40):
        cell(float(now), E.SILENCE_ALIVE if now % 2 else E.HEARD)
    assert len(cell.life.history) == SETTINGS.history
    assert cell.life.history[-1].at == 39.0


def test_a_life_that_contradicts_itself_is_found_out() -> None:
    life = ready().life
    for broken in (
        replace(life, ready_since=None),
        replace(life, hold_down_until=99.0),
        replace(life, state=CellState.DRAINING, ready_since=None),
        replace(life, broken_at=1.0),
        replace(life, history=()),
    ):
        with pytest.raises(BrokenInvariantError):
            check(broken)
