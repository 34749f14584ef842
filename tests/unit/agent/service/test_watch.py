"""Conditions to events: GPUs that vanish, XIDs, drains that are over."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.readings import CellEvent, EventKind, Gpu, HardwareReading, Health
from headrace_agent.heartbeat.build import Identity
from headrace_agent.service.node import Node
from headrace_agent.service.watch import Watch
from headrace_agent.settings import AgentSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.support.agent_sources import Fakes
from tests.support.clock import FakeClock

SETTINGS = AgentSettings.model_validate(
    {
        "node": "n",
        "site": "s",
        "controllers": [{"address": "127.0.0.1:1"}],
        "cells": [
            {"id": "c1", "url": "http://127.0.0.1:8001", "gpus": [0]},
            {"id": "c2", "url": "http://127.0.0.1:8002", "gpus": ["GPU-b"]},
        ],
    }
)


class Desk:
    """A watch with everything around it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.fakes = Fakes("c1", "c2")
        mishaps = Mishaps()
        sources = self.fakes.build(SETTINGS, self.clock, self.fakes.on_event, self.fakes.on_xid, mishaps)
        self.node = Node(SETTINGS, Identity("n", "s", "0", 1), sources, self.clock, mishaps)
        self.all: list[CellEvent] = []
        self.one: list[tuple[str, CellEvent]] = []
        self.watch = Watch(
            self.node,
            self.clock,
            self.all.append,
            lambda controller, event: self.one.append((controller, event)),
        )

    def gpu(self, ref: str | int, uuid: str, lost: bool = False) -> None:
        self.fakes.hardware.now[(ref,)] = HardwareReading(health=Health(gpu_lost=lost), gpus=(Gpu(uuid),))


@pytest.fixture
async def desk() -> Desk:
    return Desk()


async def test_a_lost_gpu_is_told_once_and_again_when_it_is_lost_again(desk: Desk) -> None:
    for lost, told in ((False, 0), (True, 1), (True, 1), (False, 1), (True, 2)):
        desk.gpu(0, "GPU-a", lost)
        desk.watch.check_gpus(desk.clock.now())
        assert [each.kind for each in desk.all] == [EventKind.GPU_LOST] * told
    assert {each.cell_id for each in desk.all} == {"c1"}


async def test_an_xid_is_told_of_each_cell_on_the_gpu(desk: Desk) -> None:
    """However the settings name the GPU: by index or by UUID."""
    desk.gpu(0, "GPU-a")
    desk.gpu("GPU-b", "GPU-b")
    desk.watch.xid("GPU-a", 79)
    assert [(each.cell_id, each.kind, each.xid) for each in desk.all] == [("c1", EventKind.XID, 79)]
    desk.watch.xid("GPU-z", 79)
    assert len(desk.all) == 1


async def test_a_finished_drain_is_told_to_the_controller_that_asked(desk: Desk) -> None:
    desk.watch.drain("ctl", pb.Drain(cell_id="c1", cause="operator", deadline_ms=60_000))
    for _ in range(3):
        now = desk.clock.advance(0.5)
        desk.fakes.engines["c1"].read(0, now)
        desk.watch.check_drains(now)
    ((controller, event),) = desk.one
    assert (controller, event.cell_id, event.kind) == ("ctl", "c1", EventKind.DRAIN_FINISHED)
    assert desk.all == []


async def test_an_undrained_or_unknown_cell_finishes_nothing(desk: Desk) -> None:
    desk.watch.drain("ctl", pb.Drain(cell_id="c1", deadline_ms=1000))
    desk.watch.undrain("ctl", pb.Undrain(cell_id="c1"))
    desk.watch.drain("ctl", pb.Drain(cell_id="stranger", deadline_ms=1000))
    desk.watch.check_drains(desk.clock.advance(5.0))
    assert desk.one == []


async def test_a_cell_not_seen_yet_is_left_out_of_the_beat(desk: Desk) -> None:
    """A restarted agent must not call an engine LOADING that it has not looked at."""
    desk.fakes.engines["c1"].first_seen.clear()
    assert [cell.cell_id for cell in desk.node.telemetry(desk.clock.now()).cells] == ["c2"]
    assert [cell.cell_id for cell in desk.node.hello(desk.clock.now()).cells] == ["c1", "c2"]
