"""From settings over the GPUs' figures to the beat, for each shape of a cell.

The hardware collector is the real one; it is handed what an exporter's page says.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.hardware.collector import HardwareCollector
from headrace_agent.collectors.hardware.dcgm import PREFIX, WANTED, read_gpus
from headrace_agent.collectors.hardware.figures import GpuFigures
from headrace_agent.collectors.hardware.page import FieldReader
from headrace_agent.collectors.hardware.source import Read
from headrace_agent.collectors.network.collector import GatewayTarget
from headrace_agent.collectors.readings import CellEvent, EventKind, Health, Status
from headrace_agent.heartbeat.build import Identity
from headrace_agent.service.node import Node
from headrace_agent.service.sources import Sources, build_sources
from headrace_agent.service.watch import Watch
from headrace_agent.settings import AgentSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.support.agent_sources import Fakes
from tests.support.clock import FakeClock

MIG_PAGE = (Path(__file__).parents[3] / "data" / "dcgm_pages" / "dcgm_a100_mig.prom").read_bytes()
ONE = b'GPU_I_ID="13"'
CELL = {"id": "c1", "url": "http://172.17.0.2:8000", "advertise": "10.0.1.7:8000"}


def gpu(index: int, busy: float, lost: bool = False, xid: int | None = None) -> GpuFigures:
    return GpuFigures(
        f"GPU-{index}",
        index,
        name="Test",
        memory_mib=81920,
        signals={"gpu_util": busy, "compute_active": 1 - busy},
        health=Health(temperature_c=40.0 + index, gpu_lost=lost, last_xid=xid),
    )


class Host:
    """One agent's inside: settings in, messages and events out."""

    def __init__(self, **settings: Any) -> None:
        self.settings = AgentSettings.model_validate(
            {"node": "host-1", "site": "s", "controllers": [{"address": "127.0.0.1:1"}], "cells": []}
            | settings
        )
        self.clock, mishaps = FakeClock(), Mishaps()
        self.fakes = Fakes(*(cell.id for cell in self.settings.cells))
        self.events: list[CellEvent] = []
        hardware = self.settings.hardware.model_copy(
            update={"dcgm_url": "http://127.0.0.1:9400", "nvml": "off"}
        )
        self.hardware = HardwareCollector(hardware, self.clock, self._xid, mishaps=mishaps)
        sources = Sources(self.fakes.engines, self.hardware, self.fakes.paths)
        self.node = Node(self.settings, Identity("host-1", "s", "0", 1), sources, self.clock, mishaps)
        self.watch = Watch(
            self.node, self.clock, self.events.append, lambda _, event: self.events.append(event)
        )
        self.energy = 0.0

    def _xid(self, uuid: str, xid: int) -> None:
        self.watch.xid(uuid, xid)

    def page(self, *gpus: GpuFigures) -> None:
        self.energy += 1
        moved = tuple(replace(each, energy_mj=None if each.instance else self.energy) for each in gpus)
        self.hardware.take_dcgm(Read(Status.OK, moved), self.clock.now())

    def beat(self) -> pb.Telemetry:
        return self.node.telemetry(self.clock.advance(0.5))

    def hello(self) -> pb.Hello:
        return self.node.hello(self.clock.advance(0.5))


def figures(beat: Any) -> dict[str, float]:
    return {field.name: value for field, value in beat.signals.ListFields()}


async def test_one_gpu() -> None:
    host = Host(cells=[CELL | {"gpus": [0]}])
    host.page(gpu(0, 0.25), gpu(1, 1.0))
    (cell,) = host.beat().cells
    assert figures(cell) == {"gpu_util": 0.25, "compute_active": 0.75}
    assert cell.hardware_source == pb.HARDWARE_SOURCE_DCGM
    assert [each.uuid for each in host.hello().cells[0].gpus] == ["GPU-0"]


async def test_tensor_parallel_takes_the_worst_gpu_for_each_signal_by_itself() -> None:
    host = Host(cells=[CELL | {"gpus": [0, "GPU-1"]}])
    host.page(gpu(0, 0.25), gpu(1, 0.75), gpu(2, 1.0))
    (cell,) = host.beat().cells
    assert figures(cell) == {"gpu_util": 0.75, "compute_active": 0.75}
    assert cell.hardware.temperature_c == 41.0
    assert [each.uuid for each in host.hello().cells[0].gpus] == ["GPU-0", "GPU-1"]


async def test_tensor_parallel_loses_its_cell_with_any_gpu() -> None:
    host = Host(cells=[CELL | {"gpus": [0, 1]}])
    host.page(gpu(0, 0.25), gpu(1, 0.75, lost=True))
    assert host.beat().cells[0].hardware.gpu_lost
    host.watch.check_gpus(host.clock.now())
    assert [(each.cell_id, each.kind) for each in host.events] == [("c1", EventKind.GPU_LOST)]


async def test_several_engines_on_one_gpu_each_get_its_figures_and_its_faults() -> None:
    second = CELL | {"id": "c2", "advertise": "10.0.1.7:8001", "gpus": ["GPU-0"]}
    host = Host(cells=[CELL | {"gpus": [0]}, second])
    host.page(gpu(0, 0.25))
    first_beat, second_beat = host.beat().cells
    assert figures(first_beat) == figures(second_beat) == {"gpu_util": 0.25, "compute_active": 0.75}
    host.page(gpu(0, 0.25, xid=79))
    assert [(each.cell_id, each.xid) for each in host.events] == [("c1", 79), ("c2", 79)]


async def test_mig_slices_each_get_their_own_instances_figures() -> None:
    """A real page of one instance beside the whole GPU's row, and a second instance that idles."""
    rows = [line for line in MIG_PAGE.splitlines() if ONE in line]
    idle = [line.replace(ONE, b'GPU_I_ID="14"').rpartition(b" ")[0] + b" 0.0" for line in rows]
    gpus = read_gpus(FieldReader(PREFIX, WANTED).read(b"\n".join([MIG_PAGE, *idle, b""])).samples)
    slices = sorted((each for each in gpus if each.instance), key=lambda each: each.instance)
    assert [each.instance for each in slices] == ["13", "14"]
    assert slices[0].signals != slices[1].signals
    cells = [
        CELL
        | {"id": f"c{at}", "advertise": f"10.0.1.7:{8000 + at}", "gpus": [f"{each.uuid}:{each.instance}"]}
        for at, each in enumerate(slices)
    ]
    host = Host(cells=cells)
    host.page(*gpus)
    beats = host.beat().cells
    hello = host.hello()
    for each, beat, facts in zip(slices, beats, hello.cells, strict=True):
        assert figures(beat) == pytest.approx(dict(each.signals))
        assert [found.uuid for found in facts.gpus] == [each.key]
    assert all("gpu_util" not in figures(beat) for beat in beats), "no source has it under MIG"


async def test_an_engine_in_a_container_is_advertised_by_the_hosts_address() -> None:
    (facts,) = Host(cells=[CELL]).hello().cells
    assert (facts.address.host, facts.address.port) == ("10.0.1.7", 8000)


async def test_the_head_of_two_nodes_says_who_else_may_report() -> None:
    (facts,) = Host(cells=[CELL | {"nodes": ["host-2", "host-3"]}]).hello().cells
    assert list(facts.member_nodes) == ["host-2", "host-3"]


async def test_a_worker_tells_of_its_gpus_and_of_nothing_else() -> None:
    host = Host(members=[{"cell": "far-1", "gpus": [0, 1]}])
    host.page(gpu(0, 0.25), gpu(1, 0.75))
    hello, told = host.hello(), host.beat()
    assert (list(hello.cells), list(told.cells), list(told.paths)) == ([], [], [])
    (facts,) = hello.members
    assert (facts.cell_id, [each.uuid for each in facts.gpus]) == ("far-1", ["GPU-0", "GPU-1"])
    assert facts.gpus[0].memory_mib == 81920
    (member,) = told.members
    assert (member.cell_id, figures(member)) == ("far-1", {"gpu_util": 0.75, "compute_active": 0.75})
    assert member.hardware.temperature_c == 41.0
    assert member.hardware_source == pb.HARDWARE_SOURCE_DCGM
    assert [each.name for each in member.sources] == ["dcgm"]


async def test_a_worker_tells_at_once_of_an_xid_and_of_a_lost_gpu() -> None:
    host = Host(members=[{"cell": "far-1", "gpus": [0, 1]}])
    host.page(gpu(0, 0.25), gpu(1, 0.75))
    host.page(gpu(0, 0.25), gpu(1, 0.75, xid=79))
    host.page(gpu(0, 0.25, lost=True), gpu(1, 0.75, xid=79))
    host.clock.advance(0.5)
    host.watch.check_gpus(host.clock.now())
    assert [(each.cell_id, each.kind, each.xid) for each in host.events] == [
        ("far-1", EventKind.XID, 79),
        ("far-1", EventKind.GPU_LOST, None),
    ]


async def test_a_worker_without_figures_says_so_and_keeps_its_gpus_named() -> None:
    host = Host(members=[{"cell": "far-1", "gpus": [0]}])
    host.page(gpu(0, 0.25))
    host.hello()
    host.hardware.take_dcgm(Read(Status.FAILED, detail="connection refused"), host.clock.advance(0.25))
    (member,) = host.beat().members
    assert (figures(member), member.hardware_source) == ({}, pb.HARDWARE_SOURCE_NONE)
    assert member.sources[0].status == pb.SOURCE_STATUS_FAILED
    assert [each.uuid for each in host.hello().members[0].gpus] == ["GPU-0"]


async def test_a_new_gpu_under_a_member_is_told_by_a_new_hello() -> None:
    host = Host(members=[{"cell": "far-1", "gpus": [0]}])
    host.page(gpu(0, 0.25))
    first = host.hello()
    assert host.hello() is first
    host.page(replace(gpu(0, 0.25), uuid="GPU-new"))
    second = host.hello()
    assert [each.uuid for each in second.members[0].gpus] == ["GPU-new"]


async def test_a_worker_looks_at_its_gpus_before_it_speaks() -> None:
    """Its first beat would tell of no figures, and end a planned goodbye's hold without any."""
    host = Host(members=[{"cell": "far-1", "gpus": [0]}])
    look = asyncio.create_task(host.node.first_look(), name="first look")
    for _ in range(5):
        await asyncio.sleep(0)
    assert not look.done()
    host.page(gpu(0, 0.25))
    async with asyncio.timeout(5):
        await look


async def test_a_host_with_cells_only_does_not_wait_for_its_gpus() -> None:
    """An exporter that hangs must not keep engines that serve from being reported."""
    async with asyncio.timeout(5):
        await Host(cells=[CELL | {"gpus": [0]}]).node.first_look()


@pytest.mark.parametrize(
    ("shape", "measured"), [({"members": [{"cell": "far-1", "gpus": [0]}]}, 0), ({"cells": [CELL]}, 1)]
)
async def test_only_a_host_with_a_cell_measures_paths(shape: dict[str, Any], measured: int) -> None:
    """A path is the way from a gateway to an engine's address; a worker has none."""
    host = Host(**shape)
    sources = build_sources(host.settings, host.clock, host.events.append, lambda *_: None, Mishaps())
    sources.paths.set_gateways([GatewayTarget("g", "127.0.0.1", 1)])
    assert len(sources.paths.readings(host.clock.now())) == measured
