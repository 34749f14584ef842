"""The book: from what agents say to lives, columns and instructions."""

from __future__ import annotations

import pytest

from headrace_controller.lifecycle import (
    Answer,
    AskEngine,
    CellState,
    EventKind,
    Publish,
)
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.inventory.builders import (
    DOWN,
    LOADING,
    beat,
    facts,
    hello,
    telemetry,
)
from tests.unit.controller.lifecycle.site import READY, Site, serving


def test_a_cell_is_loading_until_its_agent_says_that_it_serves() -> None:
    site = Site("a")
    site.beat("a", LOADING)
    assert site.tick() == ()
    assert site.state("a") is CellState.LOADING
    site.beat("a")
    assert [type(told) for told in site.tick()] == [Publish]
    assert site.book.life("a").ready_since == pytest.approx(100.05 - 3600)


def test_a_quiet_fleet_has_nothing_to_say() -> None:
    site = serving("a", "b")
    for _ in range(20):
        site.beat("a")
        site.beat("b")
        assert site.tick() == ()
    assert len(site.book.life("a").history) == 2


def test_an_event_acts_at_once() -> None:
    site = serving("a")
    assert [type(told) for told in site.event("a", pb.CELL_EVENT_KIND_ENGINE_DOWN, cause="exit 137")] == [
        Publish
    ]
    assert site.state("a") is CellState.FAILED
    assert "exit 137" in site.book.story("a")


def test_the_last_word_before_a_failure_does_not_bring_a_cell_back() -> None:
    site = serving("a", on_silence="fail")
    site.tick(0.6)
    assert site.state("a") is CellState.FAILED
    site.fleet.touch("n-a", site.now + 5.0)
    site.tick(5.0)
    assert site.state("a") is CellState.FAILED
    site.beat("a")
    site.tick()
    assert site.state("a") is READY


def test_serving_said_by_an_event_waits_for_the_beat_that_says_since_when() -> None:
    site = Site("a")
    site.event("a", pb.CELL_EVENT_KIND_ENGINE_SERVING)
    site.tick()
    assert site.state("a") is CellState.LOADING
    site.beat("a", serving_ms=200)
    site.tick()
    assert site.book.life("a").ready_since == pytest.approx(site.now - 0.25)


def test_an_event_overrides_the_beat_before_it() -> None:
    site = Site("a")
    site.beat("a", LOADING)
    site.tick()
    site.event("a", pb.CELL_EVENT_KIND_ENGINE_SERVING)
    site.beat("a")
    site.tick()
    assert site.state("a") is READY
    site.tick()
    assert site.state("a") is READY


def test_a_failed_cell_that_serves_again_returns_by_itself_after_its_hold_down() -> None:
    site = serving("a")
    site.event("a", pb.CELL_EVENT_KIND_ENGINE_DOWN)
    returned = []
    for _ in range(30):
        site.beat("a")
        site.tick()
        returned.append(site.state("a") is READY)
    assert returned.index(True) in (19, 20)  # 1 s in ticks of 0.05 s


def test_silence_asks_the_engine_and_its_answer_decides() -> None:
    for answer, state, lost in ((Answer.ALIVE, READY, True), (Answer.DEAD, CellState.FAILED, False)):
        site = serving("a")
        assert site.tick(0.6) == (AskEngine("a"),)
        assert site.state("a") is READY
        site.book.answered("a", answer, site.now)
        assert (site.state("a"), site.book.life("a").telemetry_lost) == (state, lost)


def test_an_unanswered_question_is_asked_again_at_once_and_the_second_in_a_row_decides() -> None:
    """One slow answer is no death: an engine that renders a page takes longer than a time-out."""
    site = serving("a")
    site.tick(0.6)
    assert site.book.answered("a", Answer.NO_ANSWER, site.now) == (AskEngine("a"),)
    assert site.state("a") is READY
    assert [type(told) for told in site.book.answered("a", Answer.NO_ANSWER, site.now + 0.1)] == [Publish]
    assert site.state("a") is CellState.FAILED


@pytest.mark.parametrize("between", ["an answer", "a beat"])
def test_unanswered_questions_that_are_not_in_a_row_decide_nothing(between: str) -> None:
    site = serving("a")
    site.tick(0.6)
    site.book.answered("a", Answer.NO_ANSWER, site.now)
    if between == "an answer":
        site.book.answered("a", Answer.ALIVE, site.now)
    else:
        site.beat("a")
    site.tick(0.6)
    assert site.book.answered("a", Answer.NO_ANSWER, site.now) == (AskEngine("a"),)
    assert site.state("a") is READY


def test_an_answer_that_comes_after_the_agent_was_heard_changes_nothing() -> None:
    site = serving("a")
    site.tick(0.6)
    site.beat("a")
    assert site.book.answered("a", Answer.DEAD, site.now) == ()
    assert site.book.answered("gone", Answer.DEAD, site.now) == ()
    assert site.state("a") is READY


def test_an_agent_heard_again_clears_the_mark_without_a_push() -> None:
    site = serving("a")
    site.tick(0.6)
    site.book.answered("a", Answer.ALIVE, site.now)
    site.beat("a")
    assert site.tick() == ()
    assert not site.book.life("a").telemetry_lost


def test_when_too_many_are_silent_no_answer_proves_nothing_and_a_refusal_does() -> None:
    site = serving("a", "b", "c", "d")
    told = site.tick(0.6)
    assert set(told) == {AskEngine(cell) for cell in "abcd"}
    site.book.answered("a", Answer.NO_ANSWER, site.now)
    site.book.answered("b", Answer.DEAD, site.now)
    assert site.state("a") is READY
    assert site.book.life("a").telemetry_lost
    assert site.state("b") is CellState.FAILED
    assert site.book.tick(site.now + 0.05).alarm


def test_a_planned_goodbye_moves_no_traffic_and_an_unplanned_one_takes_its_course() -> None:
    site = serving("a", "b")
    site.book.goodbye("n-a", True, 30.0, site.now)
    site.book.goodbye("n-b", False, 30.0, site.now)
    assert set(site.tick(0.6)) == {AskEngine("a"), AskEngine("b")}
    for cell in ("a", "b"):
        site.book.answered(cell, Answer.NO_ANSWER, site.now)
        site.book.answered(cell, Answer.NO_ANSWER, site.now)
    assert (site.state("a"), site.state("b")) == (READY, CellState.FAILED)
    site.tick(9.0)
    assert site.hello("a", incarnation=2) == ()
    site.beat("a", LOADING)
    site.tick()
    assert site.state("a") is READY
    assert site.book.life("a").held
    site.beat("a")
    site.tick()
    assert not site.book.life("a").held
    assert site.state("a") is READY


def test_a_goodbye_with_an_absurd_grace_holds_for_an_hour_at_most() -> None:
    site = serving("a")
    site.book.goodbye("n-a", True, 1e12, site.now)
    assert site.book.life("a").hold_until == site.now + 3600.0


def test_the_figures_of_an_agent_that_is_awaited_do_not_count_as_lost() -> None:
    site = serving("a")
    site.book.goodbye("n-a", True, 2.0, site.now)
    site.tick(0.6)
    assert site.book.answered("a", Answer.ALIVE, site.now) == ()
    assert not site.book.life("a").telemetry_lost
    site.tick(1.5)
    site.book.answered("a", Answer.ALIVE, site.now)
    assert site.book.life("a").telemetry_lost
    assert site.state("a") is READY


def test_an_agent_that_does_not_return_within_its_grace_counts_as_silent() -> None:
    site = serving("a")
    site.book.goodbye("n-a", True, 2.0, site.now)
    for _ in range(4):
        site.tick(0.49)
        assert site.book.answered("a", Answer.NO_ANSWER, site.now) == ()
    site.tick(0.6)
    site.book.answered("a", Answer.NO_ANSWER, site.now)
    assert site.state("a") is CellState.FAILED


def test_a_grace_does_not_shield_an_engine_that_is_surely_dead() -> None:
    """A host that is shut down says a planned goodbye too, and takes its engine along."""
    site = serving("a")
    site.book.goodbye("n-a", True, 30.0, site.now)
    assert site.tick(0.6) == (AskEngine("a"),)
    assert [type(told) for told in site.book.answered("a", Answer.DEAD, site.now)] == [Publish]
    assert site.state("a") is CellState.FAILED


def test_a_cell_that_another_node_took_over_lives_on_by_that_nodes_word() -> None:
    site = serving("a")
    site.book.goodbye("n-a", True, 30.0, site.now)
    changes = site.fleet.register("n-b", "s", hello("a"), site.now)
    assert site.book.registered(changes, site.now) == ()
    assert site.state("a") is READY
    site.fleet.apply("n-b", telemetry(beat("a", DOWN)), site.now)
    site.tick()
    assert site.state("a") is CellState.FAILED


def test_a_failed_cell_whose_agent_still_speaks_is_kept() -> None:
    site = serving("a", retention_s=1.0)
    for _ in range(10):
        site.beat("a", DOWN)
        site.tick(0.4)
    assert site.state("a") is CellState.FAILED


def test_kept_cells_are_adopted_without_a_ramp_once() -> None:
    site = Site("a", "b", kept=frozenset({"a"}))
    for cell in ("a", "b"):
        site.beat(cell, serving_ms=100)
    site.tick()
    assert site.book.life("a").ready_since == pytest.approx(site.now - 10.0)
    assert site.book.life("a").history[-1].event is EventKind.ADOPTED
    assert site.book.life("b").ready_since == pytest.approx(site.now - 0.15)
    site.event("a", pb.CELL_EVENT_KIND_ENGINE_DOWN)
    site.now += 2.0
    site.beat("a", serving_ms=100)
    site.tick()
    assert site.book.life("a").ready_since == pytest.approx(site.now - 0.15)


def test_a_changed_address_of_a_ready_cell_is_published() -> None:
    site = serving("a")
    changes = site.fleet.register("n-a", "s", hello(facts("a", port=9)), site.now)
    assert [type(told) for told in site.book.registered(changes, site.now)] == [Publish]


def test_every_transition_is_logged_with_its_cause() -> None:
    site = serving("a")
    site.event("a", pb.CELL_EVENT_KIND_ENGINE_HUNG, cause="no answer for 2 s")
    logged = site.book.tick(site.now).transitions[-1]
    assert logged.cell_id == "a"
    assert logged.transition.cause == "no answer for 2 s"
    assert site.book.transitions[-1] is logged
