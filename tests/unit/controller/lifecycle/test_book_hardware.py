"""The book on broken hardware: what fails a cell, and what brings it back."""

from __future__ import annotations

import pytest

from headrace_controller.lifecycle import (
    Answer,
    CellState,
)
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.inventory.builders import (
    DOWN,
    LOADING,
)
from tests.unit.controller.lifecycle.site import READY, Site, serving


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
