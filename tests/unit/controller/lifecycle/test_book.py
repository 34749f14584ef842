"""The book: from what agents say to lives, columns and instructions."""

from __future__ import annotations

import numpy as np
import pytest

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import (
    Answer,
    AskEngine,
    Book,
    CellState,
    EventKind,
    Forget,
    IllegalTransition,
    Instruction,
    NotifyDrained,
    Publish,
)
from headrace_controller.settings import LifecycleSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.inventory.builders import (
    DOWN,
    LOADING,
    SERVING,
    SLEEPING,
    beat,
    facts,
    hello,
    telemetry,
)

READY = CellState.READY


class Site:
    """One node per cell, a book, and time."""

    def __init__(self, *cells: str, kept: frozenset[str] = frozenset(), **settings: object) -> None:
        self.settings = LifecycleSettings(**settings)  # type: ignore[arg-type]
        self.fleet = Fleet(["g"])
        self.book = Book(self.fleet, self.settings, kept)
        self.now = 100.0
        for cell in cells:
            self.hello(cell)

    def hello(
        self, cell: str, incarnation: int = 1, named: tuple[str, ...] | None = None
    ) -> tuple[Instruction, ...]:
        said = hello(*((cell,) if named is None else named), incarnation=incarnation)
        return self.book.registered(self.fleet.register(f"n-{cell}", "s", said, self.now), self.now)

    def beat(self, cell: str, state: int = SERVING, **fields: object) -> None:
        self.fleet.apply(f"n-{cell}", telemetry(beat(cell, state=state, **fields)), self.now)  # type: ignore[arg-type]

    def event(self, cell: str, kind: int, **fields: object) -> tuple[Instruction, ...]:
        said = pb.CellEvent(cell_id=cell, kind=kind, **fields)  # type: ignore[arg-type]
        assert self.fleet.note_event(f"n-{cell}", said, self.now)
        return self.book.happened(said, self.now)

    def tick(self, seconds: float = 0.05) -> tuple[Instruction, ...]:
        self.now += seconds
        told = self.book.tick(self.now).instructions
        self.check_mirror()
        return told

    def state(self, cell: str) -> CellState:
        return self.book.life(cell).state

    def check_mirror(self) -> None:
        for life in self.book.lives():
            row = self.fleet.row(life.cell_id)
            assert self.fleet.state[row] == life.state
            assert self.fleet.held[row] == life.held
            assert self.fleet.telemetry_lost[row] == life.telemetry_lost
            assert self.fleet.hold_down_until[row] == life.hold_down_until
            assert np.isnan(self.fleet.ready_since[row]) == (life.ready_since is None)


def serving(*cells: str, **settings: object) -> Site:
    site = Site(*cells, **settings)
    for cell in cells:
        site.beat(cell)
    assert len(site.tick()) == len(cells)
    assert all(site.state(cell) is READY for cell in cells)
    return site


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


@pytest.mark.parametrize("xid", [48, 79, 94, 95])
def test_a_fatal_xid_fails_a_cell_and_others_do_not(xid: int) -> None:
    site = serving("a", "b")
    site.beat("a", hardware=pb.HardwareHealth())
    site.beat("b", hardware=pb.HardwareHealth())
    site.tick()
    site.beat("a", hardware=pb.HardwareHealth(last_xid=xid))
    site.beat("b", hardware=pb.HardwareHealth(last_xid=13))
    site.tick()
    assert (site.state("a"), site.state("b")) == (CellState.FAILED, READY)
    assert f"XID {xid}" in site.book.story("a")


def test_an_xid_event_and_its_beat_fail_a_cell_once_until_its_engine_restarts() -> None:
    site = serving("a")
    site.beat("a", hardware=pb.HardwareHealth())
    assert site.event("a", pb.CELL_EVENT_KIND_XID, xid=79) != ()
    assert site.event("a", pb.CELL_EVENT_KIND_XID, xid=13) == ()
    for _ in range(60):
        site.beat("a", hardware=pb.HardwareHealth(last_xid=79))
        site.tick()
    assert site.state("a") is CellState.FAILED
    site.beat("a", DOWN)
    site.tick()
    site.beat("a", serving_ms=100, hardware=pb.HardwareHealth(last_xid=79))
    site.tick()
    assert site.state("a") is READY


OLD = 3_300_000
"""An event of 55 minutes ago, ms: told again by an agent that was cut off since."""


def serve_for(site: Site, seconds: float, since: float, **fields: object) -> set[CellState]:
    """Beats of an engine that has served since a moment; the states that its cell was in."""
    seen = set()
    for _ in range(round(seconds / 0.5)):
        site.now += 0.45
        site.beat("a", serving_ms=round((site.now - since) * 1000), **fields)
        site.tick()
        seen.add(site.state("a"))
    return seen


@pytest.mark.parametrize("fault", ["xid", "gpu"])
@pytest.mark.parametrize("first", ["beat", "event"])
def test_an_old_hardware_fault_from_before_the_engines_present_life_changes_nothing(
    fault: str, first: str
) -> None:
    site = serving("a")
    site.tick(0.4)
    site.hello("a", incarnation=2)
    began = site.now - 3000.0
    if first == "beat":
        site.beat("a", serving_ms=3_000_000)
    if fault == "xid":
        told = site.event("a", pb.CELL_EVENT_KIND_XID, xid=79, age_ms=OLD)
    else:
        told = site.event("a", pb.CELL_EVENT_KIND_GPU_LOST, age_ms=OLD)
    assert told == ()
    assert serve_for(site, 5.0, began, hardware=pb.HardwareHealth(last_xid=79)) == {READY}


def test_an_old_hardware_fault_of_the_engines_present_life_fails_it_until_it_restarts() -> None:
    site = serving("a")
    site.tick(0.4)
    site.hello("a", incarnation=2)
    began = site.now - 3600.0
    site.event("a", pb.CELL_EVENT_KIND_XID, xid=79, age_ms=OLD)
    assert serve_for(site, 5.0, began) == {CellState.FAILED}
    assert serve_for(site, 5.0, site.now) >= {READY}
    assert site.state("a") is READY


@pytest.mark.parametrize("state", [LOADING, DOWN])
def test_an_old_hardware_fault_keeps_no_engine_out_that_begins_to_serve_after_it(state: int) -> None:
    site = Site("a")
    site.beat("a", state)
    site.event("a", pb.CELL_EVENT_KIND_XID, xid=79, age_ms=OLD)
    site.tick()
    assert READY in serve_for(site, 2.0, site.now)


def test_an_xid_that_a_beat_tells_after_an_outage_may_be_as_old_as_the_outage() -> None:
    """The engine died of it and was restarted while its agent was cut off."""
    site = serving("a")
    site.beat("a", hardware=pb.HardwareHealth())
    site.tick()
    cut_off = site.now
    site.tick(0.6)
    site.book.answered("a", Answer.ALIVE, site.now)
    site.now += 600.0
    assert serve_for(site, 5.0, cut_off + 300.0, hardware=pb.HardwareHealth(last_xid=79)) == {READY}


def test_a_fresh_fault_is_of_the_engines_present_life_however_young_that_is() -> None:
    site = serving("a")
    site.beat("a", serving_ms=100)
    assert site.event("a", pb.CELL_EVENT_KIND_XID, xid=79, age_ms=20) != ()
    assert site.state("a") is CellState.FAILED


def test_a_lost_gpu_keeps_its_cell_out_until_it_is_back() -> None:
    site = serving("a")
    site.event("a", pb.CELL_EVENT_KIND_GPU_LOST)
    assert site.state("a") is CellState.FAILED
    site.beat("a", DOWN)
    site.tick(5.0)
    site.beat("a", serving_ms=10, hardware=pb.HardwareHealth(gpu_lost=True))
    site.tick()
    assert site.state("a") is CellState.FAILED
    site.beat("a", serving_ms=20, hardware=pb.HardwareHealth())
    site.tick()
    assert site.state("a") is READY


def test_a_drain_ends_when_nothing_is_in_flight_but_not_before_that_can_be_known() -> None:
    site = serving("a")
    site.book.drain("a", site.now, requested_by="operator", cause="upgrade", target="t")
    site.beat("a", in_flight=0)
    assert site.tick() == ()
    for in_flight, ended in ((2, False), (0, True)):
        site.now += 1.0
        site.beat("a", in_flight=in_flight)
        told = site.tick()
        assert (NotifyDrained("a", "operator", "t", "nothing in flight") in told) is ended
    site.beat("a")
    site.tick()
    assert site.state("a") is CellState.TERMINATED


def test_a_drain_ends_at_its_deadline_whatever_is_in_flight() -> None:
    site = serving("a")
    site.book.drain("a", site.now, requested_by="operator", cause="upgrade", deadline_s=3.0)
    for _ in range(4):
        site.now += 1.0
        site.beat("a", in_flight=7)
        site.tick()
    assert site.state("a") is CellState.TERMINATED


def test_a_drained_cell_stays_out_over_an_agents_restart_until_undrained() -> None:
    site = serving("a")
    site.book.drain("a", site.now, requested_by="operator", cause="upgrade")
    site.event("a", pb.CELL_EVENT_KIND_DRAIN_FINISHED)
    site.hello("a", incarnation=2)
    site.beat("a")
    site.tick()
    assert site.state("a") is CellState.TERMINATED
    site.book.undrain("a", site.now, "back")
    site.beat("a")
    site.tick()
    assert site.state("a") is READY
    with pytest.raises(IllegalTransition):
        site.book.undrain("a", site.now, "again")
    with pytest.raises(KeyError):
        site.book.undrain("zzz", site.now, "who")


def test_a_sleeping_engine_is_out_and_back_by_itself() -> None:
    site = serving("a")
    site.beat("a", SLEEPING, in_flight=0)
    site.tick()
    assert site.state("a") is CellState.DRAINING
    site.now += 1.5
    site.beat("a", SLEEPING, in_flight=0)
    site.tick()
    assert site.state("a") is CellState.TERMINATED
    site.beat("a", serving_ms=10)
    site.tick()
    site.beat("a", serving_ms=60)
    site.tick()
    assert site.state("a") is READY


def test_a_cell_that_its_agent_names_no_more_is_forgotten_after_the_retention() -> None:
    site = serving("a", retention_s=60.0)
    told = site.hello("a", named=())
    assert [type(each) for each in told] == [Publish]
    site.tick(59.0)
    assert site.state("a") is CellState.TERMINATED
    assert site.tick(2.0) == (Forget("a"),)
    assert "a" not in site.fleet
    with pytest.raises(KeyError):
        site.book.life("a")


def test_a_cell_with_an_operators_drain_is_never_forgotten() -> None:
    """Its host is off for longer than the retention, and comes back: the operator's word stands."""
    site = serving("a", retention_s=60.0)
    site.book.drain("a", site.now, requested_by="operator", cause="new fans", deadline_s=1.0)
    for _ in range(100):
        site.tick(10.0)
    site.hello("a", incarnation=2)
    site.beat("a")
    site.tick()
    assert site.state("a") is CellState.TERMINATED
    site.book.undrain("a", site.now, "back")
    site.beat("a")
    site.tick()
    assert site.state("a") is READY


def test_a_cell_that_only_slept_is_forgotten() -> None:
    site = serving("a", retention_s=60.0)
    site.beat("a", SLEEPING)
    site.tick()
    site.event("a", pb.CELL_EVENT_KIND_DRAIN_FINISHED)
    assert site.tick(61.0) == (Forget("a"),)


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
