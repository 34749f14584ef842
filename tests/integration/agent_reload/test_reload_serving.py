"""Reloads beside engines that serve, with the real collectors and a real controller: what may move,
and what must not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace_agent.service import Agent
from headrace_agent.settings import AgentSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.integration.agent_app.fake_engine import FakeEngine, fake_engine
from tests.integration.agent_heartbeat.controller import Controller, settle, until
from tests.integration.agent_reload.crews import running, settings_for
from tests.integration.controller_service.running import Running as RealController
from tests.integration.controller_service.running import serving, settings_of
from tests.integration.controller_service.running import until as eventually
from tests.unit.agent.collectors.app.engine_pages import vllm_page

PATIENCE_S = 30.0
SERVING = pb.ENGINE_STATE_SERVING


def page(ok: int) -> bytes:
    """An engine that has answered so many requests."""
    return vllm_page(responses={"200": ok}, ttft={"0.1": ok, "+Inf": ok}, waiting=2, tokens=ok)


@dataclass
class Desk:
    """A real agent, and its file."""

    agent: Agent
    file: AgentSettings
    asked: asyncio.Event

    async def reload(self, new: AgentSettings) -> None:
        self.file = new
        self.asked.set()
        await until(lambda: self.agent.settings == new, PATIENCE_S)


@asynccontextmanager
async def real_agent(settings: AgentSettings) -> AsyncIterator[Desk]:
    stop, asked = asyncio.Event(), asyncio.Event()
    held: list[Desk] = []
    agent = Agent(settings, load=lambda: held[0].file)
    held.append(Desk(agent, settings, asked))
    task = asyncio.create_task(agent.run(stop, asked), name="agent under reload")
    try:
        yield held[0]
    finally:
        stop.set()
        async with asyncio.timeout(30):
            await task
        await settle()


def settings(port: int, *engines: FakeEngine, **more: Any) -> AgentSettings:
    cells = tuple({"id": f"c{i}", "url": engine.url} for i, engine in enumerate(engines, 1))
    base: dict[str, Any] = {"hardware": {"nvml": "off"}, "network": {"method": "off"}}
    base["engine"] = {"scrape_interval_s": 0.1, "probe_interval_s": 0.05, "hung_after_s": 5.0}
    return settings_for(port, cells=more.pop("cells", cells), **(base | more))


def beats(controller: Controller, cell_id: str) -> list[pb.CellBeat]:
    """All that was said of one cell."""
    told = controller.of_kind("telemetry") if controller.streams else []
    return [beat for each in told for beat in each.cells if beat.cell_id == cell_id]


async def test_other_cadences_leave_state_totals_and_windows_as_they_are(controller: Controller) -> None:
    async with fake_engine() as engine:
        engine.page = page(100)
        config = settings(controller.port, engine)
        async with real_agent(config) as desk:
            await until(lambda: bool(beats(controller, "c1")), PATIENCE_S)
            engine.page = page(150)
            await until(lambda: beats(controller, "c1")[-1].signals.HasField("ttft_p95_s"), PATIENCE_S)
            before = beats(controller, "c1")[-1]
            seen = len(beats(controller, "c1"))
            slower = {"scrape_interval_s": 0.3, "probe_interval_s": 0.1, "hung_after_s": 6.0}
            await desk.reload(settings(controller.port, engine, engine=slower))
            await until(lambda: len(beats(controller, "c1")) >= seen + 8, PATIENCE_S)
        later = beats(controller, "c1")[seen:]
    assert before.requests.ok == 50
    assert {each.engine_state for each in later} == {SERVING}
    assert {each.requests.ok for each in later} == {50}
    assert {each.signals.ttft_p95_s for each in later} == {before.signals.ttft_p95_s}
    since = [each.serving_ms for each in (before, *later)]
    assert since == sorted(since)
    assert controller.of_kind("event") == [] or {each.kind for each in controller.of_kind("event")} == {
        pb.CELL_EVENT_KIND_ENGINE_SERVING
    }
    assert len(controller.streams) == 1


async def test_a_reload_beside_an_engine_that_is_down(controller: Controller) -> None:
    """The dead one is reported dead before and after, and the new cell is taken up all the same."""
    async with fake_engine(listening=False) as dead, fake_engine() as engine:
        engine.page = page(100)
        async with real_agent(settings(controller.port, dead)) as desk:
            await until(lambda: bool(beats(controller, "c1")), PATIENCE_S)
            await desk.reload(settings(controller.port, dead, engine))
            await until(lambda: bool(beats(controller, "c2")), PATIENCE_S)
            await until(lambda: beats(controller, "c2")[-1].engine_state == SERVING, PATIENCE_S)
        assert {each.engine_state for each in beats(controller, "c1")} == {pb.ENGINE_STATE_DOWN}


async def test_a_cell_that_moves_to_another_serving_engine_never_stops_serving(
    controller: Controller,
) -> None:
    async with fake_engine() as old, fake_engine() as new:
        old.page = new.page = page(100)
        async with real_agent(settings(controller.port, old)) as desk:
            await until(lambda: bool(beats(controller, "c1")), PATIENCE_S)
            await desk.reload(settings(controller.port, new))
            await until(lambda: controller.of_kind("hello")[-1].cells[0].address.port == new.port, PATIENCE_S)
            asked = old.asked.get("/health", 0)
            seen = len(beats(controller, "c1"))
            await until(lambda: len(beats(controller, "c1")) >= seen + 4, PATIENCE_S)
            assert old.asked.get("/health", 0) <= asked + 1, "nobody looks at the old one any more"
        assert {each.engine_state for each in beats(controller, "c1")} == {SERVING}
        assert all(hello.cells[0].models for hello in controller.of_kind("hello"))


async def states(controller: RealController) -> dict[str, tuple[str, str]]:
    """What the controller says of each cell: its state, and why."""
    return {cell_id: (cell["state"], cell["cause"]) for cell_id, cell in (await controller.cells()).items()}


async def test_a_removed_cell_leaves_its_controller_and_the_others_keep_their_weights() -> None:
    async with serving(settings_of()) as controller:
        both = settings_for(controller.telemetry)
        async with running(both) as desk:
            await eventually(lambda: _ready(controller, "c1", "c2"))
            before = (await controller.cells())["c1"]
            await desk.reload(settings_for(controller.telemetry, cells=("c1",)))
            await eventually(lambda: _is(controller, "c2", "TERMINATED"))
            assert (await states(controller))["c2"][1] == "no longer in its agent's config"
            after = (await controller.cells())["c1"]
            assert after["weights"] == before["weights"]
            assert (await controller.cells())["c2"]["weights"] == {"gw-1": 0}
            _, events = await controller.get("/api/v1/events")
            assert '"FAILED"' not in events
            await desk.reload(both)
            await eventually(lambda: _ready(controller, "c1", "c2"))
            assert (await controller.cells())["c1"]["state_since_s"] > before["state_since_s"]


async def test_labels_alone_change_no_state_and_no_weight() -> None:
    labelled = {"id": "c1", "url": "http://127.0.0.1:8001", "labels": {"rack": "7"}}
    cells = (labelled, {"id": "c2", "url": "http://127.0.0.1:8002"})
    async with serving(settings_of()) as controller, running(settings_for(controller.telemetry)) as desk:
        await eventually(lambda: _ready(controller, "c1", "c2"))
        _, before = await controller.get("/api/v1/events")
        await desk.reload(settings_for(controller.telemetry, cells=cells))
        fleet = controller.controller.loop.fleet
        await until(lambda: dict(fleet.facts_of(fleet.row("c1")).labels) == {"rack": "7"}, PATIENCE_S)
        await asyncio.sleep(0.5)
        assert (await controller.get("/api/v1/events"))[1] == before
        assert await _ready(controller, "c1", "c2")


async def test_a_controller_that_is_dropped_lets_the_cells_go() -> None:
    """It must not go on routing to cells that it hears nothing of."""
    async with (
        serving(settings_of()) as first,
        serving(settings_of()) as second,
        running(settings_for(first.telemetry, second.telemetry)) as desk,
    ):
        for each in (first, second):
            await eventually(partial(_ready, each, "c1", "c2"))
        await desk.reload(settings_for(first.telemetry))
        await eventually(lambda: _is(second, "c1", "TERMINATED"))
        await eventually(lambda: _is(second, "c2", "TERMINATED"))
        assert await _ready(first, "c1", "c2")


async def _ready(controller: RealController, *cells: str) -> bool:
    known = await controller.cells()
    return all(
        cell in known and known[cell]["state"] == "READY" and any(known[cell]["weights"].values())
        for cell in cells
    )


async def _is(controller: RealController, cell: str, state: str) -> bool:
    return (await controller.cells()).get(cell, {}).get("state") == state
