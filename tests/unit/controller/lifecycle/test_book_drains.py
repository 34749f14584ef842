"""The book on drains, sleep and forgetting."""

from __future__ import annotations

import pytest

from headrace_controller.lifecycle import (
    CellState,
    Forget,
    IllegalTransition,
    NotifyDrained,
    Publish,
)
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.inventory.builders import (
    SLEEPING,
)
from tests.unit.controller.lifecycle.site import READY, serving


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


def test_a_drained_cell_that_is_taken_out_of_its_agents_config_is_forgotten() -> None:
    """Drained and then removed, which is how cells are retired, it would stay for ever."""
    site = serving("a", retention_s=60.0)
    site.book.drain("a", site.now, requested_by="operator", cause="retired", deadline_s=1.0)
    site.tick(2.0)
    site.hello("a", named=())
    site.tick(59.0)
    assert "a" in site.fleet
    assert site.tick(2.0) == (Forget("a"),)


def test_a_cell_removed_in_the_middle_of_its_drain_ends_it_and_says_why() -> None:
    site = serving("a")
    site.book.drain("a", site.now, requested_by="operator", cause="upgrade", target="t")
    told = site.hello("a", named=())
    assert NotifyDrained("a", "operator", "t", "no longer in its agent's config") in told
    assert site.state("a") is CellState.TERMINATED


def test_a_cell_that_only_slept_is_forgotten() -> None:
    site = serving("a", retention_s=60.0)
    site.beat("a", SLEEPING)
    site.tick()
    site.event("a", pb.CELL_EVENT_KIND_DRAIN_FINISHED)
    assert site.tick(61.0) == (Forget("a"),)
