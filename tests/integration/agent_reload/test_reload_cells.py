"""Cells that come, go, stay and change while the agent runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace_agent.collectors.readings import (
    CellEvent,
    EngineReading,
    EngineState,
    EventKind,
    Gpu,
    HardwareReading,
    HardwareSource,
)
from headrace_agent.service import crew
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.integration.agent_heartbeat.controller import Controller, until
from tests.integration.agent_reload.crews import running, settings_for

MOVED = {"id": "c1", "url": "http://127.0.0.1:8101"}
C2 = {"id": "c2", "url": "http://127.0.0.1:8002"}


def named(controller: Controller) -> list[str]:
    """The cells of the newest Hello."""
    return [cell.cell_id for cell in controller.of_kind("hello")[-1].cells]


def told(controller: Controller) -> list[str]:
    """The cells of the newest beat."""
    return [cell.cell_id for cell in controller.of_kind("telemetry")[-1].cells]


async def test_cells_come_and_go_and_those_that_stay_notice_nothing(controller: Controller) -> None:
    async with running(settings_for(controller.port)) as desk:
        c1, c2 = desk.crews.first.engines["c1"], desk.crews.first.engines["c2"]
        await until(lambda: bool(controller.of_kind("telemetry")))
        await desk.reload(settings_for(controller.port, cells=("c2", "c3")))
        await until(lambda: named(controller) == ["c2", "c3"])
        await until(lambda: told(controller) == ["c2", "c3"])
        await until(lambda: c1.ends == 1)
        assert (c2.starts, c2.ends) == (1, 0)
        assert desk.crews.last.engines["c3"].at_work
        assert desk.crews.last.engines["c2"].starts == 0
        assert desk.crews.first.hardware.at_work
        assert len(controller.streams) == 1, "the stream goes on"
    assert [desk.crews.last.engines["c3"].at_work, c2.at_work] == [False, False]


async def test_labels_alone_are_told_and_touch_nothing(controller: Controller) -> None:
    async with running(settings_for(controller.port)) as desk:
        labelled = {"id": "c1", "url": "http://127.0.0.1:8001", "labels": {"rack": "7"}}
        await desk.reload(settings_for(controller.port, cells=(labelled, C2)))
        await until(lambda: dict(controller.of_kind("hello")[-1].cells[0].labels) == {"rack": "7"})
        engines = desk.crews.first.engines.values()
        assert [(engine.starts, engine.ends) for engine in engines] == [(1, 0), (1, 0)]
        assert len(controller.streams) == 1


async def test_a_cell_that_is_gone_leaves_neither_events_nor_drains_behind(controller: Controller) -> None:
    controller.acks = False
    async with running(settings_for(controller.port)) as desk:
        drain = pb.Drain(cell_id="c1", cause="upgrade", deadline_ms=500)
        await controller.send(pb.ControllerMessage(directive=pb.Directive(drain=drain)))
        desk.crews.first.on_event(CellEvent("c1", EventKind.ENGINE_DOWN, "refused"))
        desk.crews.first.on_event(CellEvent("c2", EventKind.ENGINE_DOWN, "refused"))
        await until(lambda: len(controller.of_kind("event")) == 2)
        await desk.reload(settings_for(controller.port, cells=("c2",)))
        (stream,) = desk.agent.streams.values()
        assert stream.events_unacked == 1
        desk.crews.first.on_event(CellEvent("c1", EventKind.ENGINE_SERVING, "its last word"))
        await asyncio.sleep(0.8)
        assert [each.cell_id for each in controller.of_kind("event")] == ["c1", "c2"]
        assert stream.connected
    assert "watch" not in desk.agent._mishaps.counts


async def test_a_cell_with_another_engine_keeps_the_old_one_until_the_new_one_was_seen(
    controller: Controller,
) -> None:
    """Named at its new address before anyone has looked there, it would get requests unseen."""
    async with running(settings_for(controller.port)) as desk:
        await until(lambda: bool(controller.of_kind("telemetry")))
        desk.crews.unseen = {"c1"}
        desk.file = settings_for(controller.port, cells=(MOVED, C2))
        desk.asked.set()
        await until(lambda: len(desk.crews.built) == 2 and desk.crews.last.engines["c1"].at_work)
        fresh, old = desk.crews.last.engines["c1"], desk.crews.first.engines["c1"]
        desk.crews.last.on_event(CellEvent("c1", EventKind.ENGINE_LOADING, "too early"))
        beats = len(controller.of_kind("telemetry"))
        await until(lambda: len(controller.of_kind("telemetry")) >= beats + 3)
        assert controller.of_kind("hello")[-1].cells[0].address.port == 8001
        assert told(controller) == ["c1", "c2"]
        assert old.at_work
        fresh.now = EngineReading(EngineState.LOADING)
        fresh.first_seen.set()
        await until(lambda: controller.of_kind("hello")[-1].cells[0].address.port == 8101)
        await until(lambda: not old.at_work)
        newest = [each.WhichOneof("body") for each in controller.streams[-1]]
        after = newest[len(newest) - 1 - newest[::-1].index("hello") :]
        await until(
            lambda: controller.of_kind("telemetry")[-1].cells[0].engine_state == pb.ENGINE_STATE_LOADING
        )
        assert "event" not in after
        desk.crews.first.on_event(CellEvent("c1", EventKind.ENGINE_DOWN, "the old one's"))
        desk.crews.last.on_event(CellEvent("c1", EventKind.ENGINE_SERVING, "the new one's"))
        await until(lambda: bool(controller.of_kind("event")))
    assert [each.cause for each in controller.of_kind("event")] == ["the new one's"]
    assert desk.crews.first.engines["c2"].starts == 1


async def test_a_new_engine_that_gives_no_sign_is_waited_for_a_bounded_time(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "LOOK_S", 0.2)
    monkeypatch.setattr(crew, "LOOK_SLACK_S", 0.0)
    quick = {"engine": {"hung_after_s": 0.2}}
    async with running(settings_for(controller.port, **quick)) as desk:
        desk.crews.unseen = {"c1"}
        await desk.reload(settings_for(controller.port, cells=(MOVED, C2), **quick))
        await until(lambda: controller.of_kind("hello")[-1].cells[0].address.port == 8101)
        await until(lambda: told(controller) == ["c2"])


async def test_other_cadences_keep_every_collector_and_what_it_knows(controller: Controller) -> None:
    async with running(settings_for(controller.port)) as desk:
        await desk.reload(settings_for(controller.port, engine={"scrape_interval_s": 1.0}))
        engines = desk.crews.first.engines
        await until(lambda: all(engine.starts == 2 for engine in engines.values()))
        assert [engine.retuned_by for engine in engines.values()] == [
            [desk.crews.last.engines[cell_id]] for cell_id in engines
        ]
        assert all(engine.at_work for engine in engines.values())
        desk.crews.first.on_event(CellEvent("c1", EventKind.ENGINE_DOWN, "still heard"))
        await until(lambda: bool(controller.of_kind("event")))


def shown(*gpus: int | str) -> dict[Any, HardwareReading]:
    return {
        gpus: HardwareReading(source=HardwareSource.NVML, gpus=tuple(Gpu(f"GPU-{each}") for each in gpus))
    }


async def test_hardware_changes_over_without_a_gap(controller: Controller) -> None:
    """A cell without hardware figures, if only for a moment, is scored as one whose exporter died."""
    cells: Any = ({"id": "c1", "url": "http://127.0.0.1:8001", "gpus": [0]}, C2)
    async with running(settings_for(controller.port, cells=cells)) as desk:
        desk.crews.first.hardware.now = shown(0)
        await until(lambda: bool(controller.of_kind("telemetry")))
        desk.file = settings_for(controller.port, cells=cells, hardware={"nvml_interval_s": 1.0})
        desk.asked.set()
        await until(lambda: len(desk.crews.built) == 2 and desk.crews.last.hardware.at_work)
        desk.crews.last.on_xid("GPU-0", 79)
        await asyncio.sleep(0.3)
        assert desk.crews.first.hardware.at_work
        desk.crews.last.hardware.now = shown(0)
        await until(lambda: not desk.crews.first.hardware.at_work)
        desk.crews.first.on_xid("GPU-0", 13)
        desk.crews.last.on_xid("GPU-0", 48)
        await until(lambda: bool(controller.of_kind("event")))
    assert [each.xid for each in controller.of_kind("event")] == [48]
    sources = [beat.cells[0].hardware_source for beat in controller.of_kind("telemetry")]
    had = sources[sources.index(pb.HARDWARE_SOURCE_NVML) :]
    assert set(had) == {pb.HARDWARE_SOURCE_NVML}


async def test_paths_change_over_with_the_gateways_that_are_known(controller: Controller) -> None:
    controller.gateways = [pb.Gateway(id="g1", host="127.0.0.1")]
    async with running(settings_for(controller.port)) as desk:
        await until(lambda: [each.id for each in desk.crews.first.paths.gateways] == ["g1"])
        await desk.reload(settings_for(controller.port, network={"method": "tcp"}))
        await until(lambda: desk.crews.last.paths.at_work and not desk.crews.first.paths.at_work)
        assert [each.id for each in desk.crews.last.paths.gateways] == ["g1"]


async def test_a_reload_in_the_middle_of_a_goodbye_is_given_up(
    controller: Controller, second: Controller
) -> None:
    """Completed during the goodbye, it would dial a controller that then hears no goodbye."""
    async with running(settings_for(controller.port)) as desk:
        desk.crews.unseen = {"c1"}
        desk.file = settings_for(controller.port, second.port, cells=(MOVED, C2))
        desk.asked.set()
        await until(lambda: len(desk.crews.built) == 2 and desk.crews.last.engines["c1"].at_work)
        controller.reads.clear()
        desk.stop.set()
        desk.asked.set()
        await asyncio.sleep(0.1)
        desk.crews.last.engines["c1"].first_seen.set()
        await asyncio.sleep(0.2)
        controller.reads.set()
        async with asyncio.timeout(30):
            await asyncio.shield(desk.task)
    assert second.streams == []
    assert controller.kinds()[-1] == "goodbye"
    assert controller.of_kind("goodbye")[0].planned
    assert named(controller) == ["c1", "c2"]
    for made in desk.crews.built:
        assert not any(engine.at_work for engine in made.engines.values())


async def test_many_reloads_leave_nothing_behind(controller: Controller) -> None:
    few = settings_for(controller.port)
    many = settings_for(controller.port, cells=("c2", "c3", "c4"), network={"interval_s": 1.0})
    async with running(few) as desk:
        await desk.reload(many)
        await desk.reload(few)
        before = len(asyncio.all_tasks())
        for _ in range(15):
            await desk.reload(many)
            await desk.reload(few)
        await until(lambda: len(asyncio.all_tasks()) <= before)

        def at_work() -> int:
            return sum(engine.at_work for made in desk.crews.built for engine in made.engines.values())

        await until(lambda: at_work() == 2)
        await until(lambda: len(desk.agent._crew._tasks) == 4)
        await until(lambda: sum(made.paths.at_work for made in desk.crews.built) == 1)
        assert len(controller.streams) == 1
