"""Cells over several nodes: faults of any node's GPUs, what operators see, and what is forgotten."""

from __future__ import annotations

import pytest

from headrace_controller.inventory import Fleet, view_cell
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.inventory.builders import facts, hello
from tests.unit.controller.inventory.split_cell import DCGM, Engine, reporting


@pytest.fixture
def engine() -> Engine:
    return reporting()


def test_a_lost_gpu_of_any_node_is_the_cells_and_mends_with_it(engine: Engine) -> None:
    engine.member_beat("w1", hardware=pb.HardwareHealth(gpu_lost=True))
    assert engine.flag("gpu_lost")
    assert engine.fleet.crews.fault_node(engine.row) == "w1"
    engine.head_beat(health=pb.HardwareHealth(gpu_lost=False), compute_active=0.5)
    assert engine.flag("gpu_lost"), "the head's word is about its own GPUs"
    engine.member_beat("w1", compute_active=0.1)
    assert engine.flag("gpu_lost"), "silence takes nothing back"
    engine.member_beat("w1", hardware=pb.HardwareHealth(gpu_lost=False))
    assert not engine.flag("gpu_lost")


def test_a_member_that_fell_silent_takes_its_lost_gpu_along(engine: Engine) -> None:
    """Otherwise a host that was taken out for repair would keep a restarted engine down for ever."""
    engine.member_beat("w1", hardware=pb.HardwareHealth(gpu_lost=True))
    engine.judge(1.0)
    assert not engine.flag("gpu_lost")


def test_an_event_of_a_lost_gpu_counts_at_once_and_an_old_one_does_not(engine: Engine) -> None:
    assert engine.event("w2", pb.CELL_EVENT_KIND_GPU_LOST, age_ms=5000)
    assert not engine.flag("gpu_lost")
    assert engine.event("w2", pb.CELL_EVENT_KIND_GPU_LOST)
    assert engine.flag("gpu_lost")
    engine.head_beat(health=pb.HardwareHealth(), compute_active=0.5)
    assert engine.flag("gpu_lost")


@pytest.mark.parametrize("kind", [pb.CELL_EVENT_KIND_ENGINE_DOWN, pb.CELL_EVENT_KIND_DRAIN_FINISHED])
def test_an_event_about_the_engine_is_not_a_members(engine: Engine, kind: int) -> None:
    before = engine.flag("engine_state")
    assert not engine.event("w1", kind)
    assert engine.flag("engine_state") == before


def test_a_members_new_xid_is_the_cells_and_its_first_is_only_the_base(engine: Engine) -> None:
    engine.member_beat("w1", hardware=pb.HardwareHealth(last_xid=43))
    assert engine.flag("new_xid") == 0, "sources keep the last one for ever"
    engine.now += 0.5
    engine.member_beat("w1", hardware=pb.HardwareHealth(last_xid=79))
    assert (engine.flag("new_xid"), engine.flag("xid_at")) == (79, engine.now)
    assert engine.fleet.crews.fault_node(engine.row) == "w1"


def test_xids_of_two_nodes_at_once_do_not_hide_each_other(engine: Engine) -> None:
    for node in ("w1", "w2"):
        engine.member_beat(node, hardware=pb.HardwareHealth())
    engine.head_beat(health=pb.HardwareHealth())
    engine.member_beat("w1", hardware=pb.HardwareHealth(last_xid=79))
    engine.member_beat("w2", hardware=pb.HardwareHealth(last_xid=31))
    engine.head_beat(health=pb.HardwareHealth(last_xid=45))
    assert engine.flag("new_xid") == 79
    engine.fleet.new_xid[engine.row] = 0
    engine.member_beat("w2", hardware=pb.HardwareHealth(last_xid=31))
    assert engine.flag("new_xid") == 31
    engine.fleet.new_xid[engine.row] = 0
    engine.head_beat(health=pb.HardwareHealth(last_xid=45))
    assert engine.flag("new_xid") == 45
    assert engine.fleet.crews.fault_node(engine.row) == ""


def test_an_xid_that_an_event_told_is_not_told_again_by_the_beat(engine: Engine) -> None:
    engine.member_beat("w1", hardware=pb.HardwareHealth())
    assert engine.event("w1", pb.CELL_EVENT_KIND_XID, xid=79)
    engine.member_beat("w1", hardware=pb.HardwareHealth(last_xid=79))
    assert engine.flag("new_xid") == 0


def test_an_xid_from_an_outage_can_be_as_old_as_the_outage(engine: Engine) -> None:
    engine.member_beat("w1", hardware=pb.HardwareHealth())
    engine.now += 60.0
    engine.member_beat("w1", hardware=pb.HardwareHealth(last_xid=79))
    assert engine.flag("xid_at") == 100.0


def test_the_view_names_the_members(engine: Engine) -> None:
    engine.judge(0.2)
    found = view_cell(engine.fleet, "c1", engine.now)
    assert [(each.node, each.lost, [gpu.uuid for gpu in each.gpus]) for each in found.members] == [
        ("w1", False, ["GPU-w1"]),
        ("w2", False, ["GPU-w2"]),
    ]
    assert found.members[0].heard_age_s == pytest.approx(0.2)
    assert found.members[0].hardware_source == DCGM


def test_a_removed_cell_leaves_nothing_to_the_next_one_in_its_row(engine: Engine) -> None:
    engine.member_beat("w1", compute_active=0.9, hardware=pb.HardwareHealth(gpu_lost=True))
    engine.fleet.remove("c1")
    assert engine.member_beat("w1", compute_active=1.0) == ["c1"]
    named = facts("c2")
    named.member_nodes.append("w1")
    engine.fleet.register("head-2", "s", hello(named), engine.now)
    assert engine.fleet.row("c2") == engine.row
    assert view_cell(engine.fleet, "c2", engine.now).members[0].hardware_source == 0
    assert engine.signals == {}
    assert not engine.flag("gpu_lost")


def test_nodes_without_cells_are_forgotten_after_the_retention_and_others_are_not() -> None:
    fleet = Fleet(["g"], retention_s=600.0)
    fleet.register("n1", "s", hello("c1"), 0.0)
    fleet.register("n2", "s", hello("c2"), 0.0)
    fleet.register("n2", "s", hello(), 10.0)
    for number in range(1000):
        fleet.register(f"passer-by-{number}", "s", hello(), 10.0)
    fleet.register("worker", "s", pb.Hello(incarnation=1, members=[pb.MemberFacts(cell_id="c1")]), 10.0)
    fleet.touch("worker", 500.0)
    fleet.forget_nodes(609.0)
    assert len(fleet.nodes) == 1003
    fleet.forget_nodes(610.0)
    assert sorted(fleet.nodes) == ["n1", "worker"]
    fleet.forget_nodes(1100.0)
    assert sorted(fleet.nodes) == ["n1"], "cells keep their node, however silent"
