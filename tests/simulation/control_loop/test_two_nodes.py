"""One engine over two nodes: what a member's figures, faults and silence do to its cell's traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_controller.inventory import view_cell
from headrace_controller.lifecycle import CellState
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.simulation.control_loop.test_control_loop import Region
from tests.simulation.control_loop.test_warm_start import kept_from

READY, FAILED = CellState.READY, CellState.FAILED


class Split(Region):
    """c1 runs on the nodes n1 (its head) and w1, c2 on n2 alone."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.busy = 0.3
        self.health = pb.HardwareHealth()
        self.events = 0

    def connect_all(self) -> None:
        self.connect("n2", "c2")
        self.head()
        self.worker()

    def head(self, *nodes: str) -> None:
        """n1 says Hello; w1 is its member unless others are named."""
        facts = pb.CellFacts(
            cell_id="c1",
            address=pb.Address(host="127.0.0.1", port=8001),
            models=[pb.ModelFacts(id="m")],
            gpus=[pb.GpuFacts(uuid="GPU-n1")],
            member_nodes=nodes or ("w1",),
        )
        self.nodes["n1"] = {"c1": pb.ENGINE_STATE_SERVING}
        self._hello("n1", cells=[facts])

    def worker(self) -> None:
        """w1 says Hello."""
        self.nodes["w1"] = {}
        self._hello("w1", members=[pb.MemberFacts(cell_id="c1")])

    def beat(self, node: str, now: float) -> None:
        if node != "w1":
            super().beat(node, now)
            return
        said = pb.MemberBeat(
            cell_id="c1",
            signals=pb.Signals(compute_active=self.busy),
            hardware=self.health,
            hardware_source=pb.HARDWARE_SOURCE_DCGM,
        )
        self.loop.telemetry("w1", pb.Telemetry(members=[said]), now)
        self.loop.alive("w1", now)

    def event(self, node: str, kind: Any, **fields: Any) -> None:
        self.events += 1
        said = pb.CellEvent(event_id=self.events, cell_id="c1", kind=kind, **fields)
        self.loop.event(node, said, self.clock.now())

    def view(self) -> Any:
        return view_cell(self.loop.fleet, "c1", self.clock.now())

    def _hello(self, node: str, **facts: Any) -> None:
        hello = pb.Hello(node=node, site=node, incarnation=self.clock.wall_ns(), **facts)
        self.loop.hello(hello, self.clock.now())


@pytest.fixture
def split() -> Split:
    """Both cells READY and published, with equal weights."""
    made = Split()
    made.connect_all()
    made.run(8)
    assert made.weights == {"c1": 100, "c2": 100}
    return made


def states(region: Split, *cells: str) -> list[CellState]:
    return [region.state(cell) for cell in cells or ("c1", "c2")]


def test_a_busy_member_makes_its_cell_the_busier_one(split: Split) -> None:
    split.busy = 1.0
    split.run(10)
    assert split.weights["c1"] < split.weights["c2"] == 100
    assert split.view().signals["compute_active"] == 1.0


def test_a_members_own_hello_does_not_move_traffic(split: Split) -> None:
    plans = len(split.outside.plans)
    split.worker()
    split.run(5)
    assert len(split.outside.plans) == plans


@pytest.mark.parametrize("told", ["event", "beat"])
@pytest.mark.parametrize("fault", ["xid", "lost"])
def test_a_fatal_fault_of_a_members_gpu_fails_the_whole_cell(split: Split, fault: str, told: str) -> None:
    if told == "event" and fault == "xid":
        split.event("w1", pb.CELL_EVENT_KIND_XID, xid=79, cause="node w1: XID 79 on GPU GPU-w1")
    elif told == "event":
        split.event("w1", pb.CELL_EVENT_KIND_GPU_LOST, cause="node w1: a GPU under this cell is gone")
    elif fault == "xid":
        split.health = pb.HardwareHealth(last_xid=79)
    else:
        split.health = pb.HardwareHealth(gpu_lost=True)
    split.run(0.2)
    assert states(split) == [FAILED, READY]
    assert split.weights == {"c2": 100}
    life = split.loop.book.life("c1")
    assert "w1" in life.cause, "the operator must know on which host"
    assert life.broken_at is not None, "only a restarted engine brings it back"


def test_an_xid_that_is_not_fatal_fails_nothing(split: Split) -> None:
    split.event("w1", pb.CELL_EVENT_KIND_XID, xid=31)
    split.health = pb.HardwareHealth(last_xid=31)
    split.run(1)
    assert states(split) == [READY, READY]


def test_a_node_that_is_not_named_can_neither_spoil_nor_fail_the_cell(split: Split) -> None:
    split.head("w2")
    split.run(0.5)
    plans = len(split.outside.plans)
    split.busy, split.health = 1.0, pb.HardwareHealth(gpu_lost=True, last_xid=79)
    split.event("w1", pb.CELL_EVENT_KIND_GPU_LOST)
    split.run(10)
    assert states(split) == [READY, READY]
    assert len(split.outside.plans) == plans


def test_a_silent_member_marks_its_cell_and_does_not_fail_it(split: Split) -> None:
    with capture_logs() as logs:
        split.run(3, silent=["w1"])
        assert states(split) == [READY, READY]
        view = split.view()
        assert (view.member_lost, [each.lost for each in view.members]) == (True, [True])
        assert "compute_active" in view.signals, "the head's own"
        split.run(1)
    assert not split.view().member_lost
    told = [(line["event"].split(":")[0], line.get("node")) for line in logs if "member" in line["event"]]
    assert told == [("member lost", "w1"), ("member reports again", "w1")]
    assert split.weights == {"c1": 100, "c2": 100}


def test_the_silence_of_a_busy_member_takes_its_figures_out(split: Split) -> None:
    split.busy = 1.0
    split.run(10)
    busy = split.weights["c1"]
    split.run(10, silent=["w1"])
    assert split.view().signals["compute_active"] == pytest.approx(0.3)
    assert busy < 75 < 90 < split.weights["c1"], "up to the deadband, as if it had no member"


def test_a_dead_worker_is_a_dead_engine_by_the_heads_word(split: Split) -> None:
    """The engine loses its peer and its server ends: that is what takes the cell out."""
    split.run(0.3, silent=["w1"])
    split.down("n1", "c1")
    split.run(0.1, silent=["w1"])
    assert states(split) == [FAILED, READY]


def test_a_silent_head_is_judged_as_ever_however_lively_its_member() -> None:
    region = Split(lifecycle="ramp_s: 0, on_silence: fail")
    region.connect_all()
    region.run(8)
    region.run(1, silent=["n1"])
    assert states(region) == [FAILED, READY]


def test_an_upgrade_of_the_members_agent_moves_no_traffic(split: Split) -> None:
    split.busy = 0.8
    split.run(20)
    plans = len(split.outside.plans)
    split.loop.goodbye("w1", pb.Goodbye(planned=True, grace_ms=30_000), split.clock.now())
    split.run(4, silent=["w1"])
    assert not split.view().member_lost
    split.worker()
    split.run(10)
    assert len(split.outside.plans) == plans


def test_a_restart_of_the_heads_agent_keeps_its_members(split: Split) -> None:
    split.busy = 0.8
    split.run(20)
    before = split.weights
    split.loop.goodbye("n1", pb.Goodbye(planned=True, grace_ms=30_000), split.clock.now())
    split.run(3, silent=["n1"])
    split.head()
    split.run(1)
    assert (states(split), split.weights) == ([READY, READY], before)
    assert split.view().signals["compute_active"] == 0.8


def test_a_restarted_controller_learns_the_members_anew_and_moves_no_traffic(
    split: Split, tmp_path: Path
) -> None:
    split.busy = 0.8
    split.run(20)
    again = Split(kept=kept_from(split, tmp_path), clock=split.clock)
    again.busy = 0.8
    again.worker()  # the order of their coming back must not matter
    again.run(1)
    again.connect("n2", "c2")
    again.head()
    with capture_logs() as logs:
        again.run(10)
    assert again.weights == split.weights
    assert (again.view().member_lost, again.view().signals["compute_active"]) == (False, 0.8)
    assert [line for line in logs if "member lost" in line["event"]] == []


def test_a_worker_alone_does_not_open_the_barrier() -> None:
    """A controller that hears a worker first must not publish a fleet without cells."""
    region = Split()
    region.worker()
    region.run(30)
    assert region.outside.plans == []
    region.head()
    region.run(2)
    assert region.outside.plans == []
    region.run(3)
    assert region.weights == {"c1": 100}


# Drains of agents that come back, and what is remembered of nodes.


def drains(region: Split) -> list[tuple[str, str, str, int]]:
    """Every Drain directive sent: node, cell, cause, whole seconds left."""
    return [
        (
            node,
            said.directive.drain.cell_id,
            said.directive.drain.cause,
            said.directive.drain.deadline_ms // 1000,
        )
        for node, said in region.outside.sent
        if said.directive.HasField("drain")
    ]


def test_an_agent_that_comes_back_is_told_of_its_drain_again(split: Split) -> None:
    """A restarted agent has forgotten it, and one that was away has never heard of it."""
    split.loop.drain("c1", "new driver", 60.0)
    assert drains(split) == [("n1", "c1", "new driver", 60)]
    split.run(10)
    assert len(drains(split)) == 1
    split.head()
    assert len(drains(split)) == 1, "not before its Welcome, which is sent when the Hello was taken"
    split.run(0.1)
    assert drains(split)[1:] == [("n1", "c1", "new driver", 49)]
    split.worker()
    split.run(1)
    assert len(drains(split)) == 2, "a member is not told of the head's drain"


@pytest.mark.parametrize("how", ["never", "undrained", "finished", "asleep"])
def test_an_agent_is_told_of_no_drain_that_does_not_run(split: Split, how: str) -> None:
    if how in ("undrained", "finished"):
        split.loop.drain("c1", "new driver", 60.0)
        split.run(0.2)
    if how == "undrained":
        split.loop.undrain("c1", "done")
    if how == "finished":
        split.event("n1", pb.CELL_EVENT_KIND_DRAIN_FINISHED)
    if how == "asleep":
        split.nodes["n1"]["c1"] = pb.ENGINE_STATE_SLEEPING
        split.run(0.2)
    before, engine = len(drains(split)), split.nodes["n1"]["c1"]
    split.head()
    split.nodes["n1"]["c1"] = engine
    split.run(0.2)
    assert len(drains(split)) == before


def test_a_drain_from_before_the_controllers_restart_is_told(split: Split, tmp_path: Path) -> None:
    split.loop.drain("c1", "new driver", 60.0)
    split.run(1)
    again = Split(kept=kept_from(split, tmp_path), clock=split.clock)
    again.connect_all()
    again.run(0.2)
    assert [each[:3] for each in drains(again)] == [("n1", "c1", "new driver")]


def test_nodes_that_came_and_went_are_forgotten() -> None:
    region = Split(lifecycle="ramp_s: 0, retention_s: 10")
    region.connect_all()
    region.run(4)
    for number in range(500):
        region.loop.hello(pb.Hello(node=f"x{number}", site="s", incarnation=1), region.clock.now())
        region.loop.telemetry(f"x{number}", pb.Telemetry(), region.clock.now())
    region.run(0.1)
    assert len(region.loop.fleet.nodes) == 503
    assert not region.loop._heard, "after the barrier nobody asks who was heard"
    region.run(12)
    assert sorted(region.loop.fleet.nodes) == ["n1", "n2", "w1"]
