"""The whole agent with fake collectors, against real gRPC servers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from headrace_agent.collectors import containment
from headrace_agent.collectors.readings import CellEvent, EngineReading, EventKind, SourceReading, Status
from headrace_agent.service import Agent
from headrace_agent.settings import AgentSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.clock import SystemClock
from headrace_shared.net import PortInUseError
from tests.integration.agent_heartbeat.controller import Controller, settle, until
from tests.support.agent_sources import Fakes
from tests.support.ports import free_port

clock = SystemClock()


def settings(*ports: int, metrics: int | None = None) -> AgentSettings:
    return AgentSettings.model_validate(
        {
            "node": "host-1",
            "site": "berlin",
            "controllers": [{"address": f"127.0.0.1:{port}"} for port in ports],
            "cells": [
                {"id": "c1", "url": "http://127.0.0.1:8001"},
                {"id": "c2", "url": "http://127.0.0.1:8002"},
            ],
            "metrics_listen": None if metrics is None else f"127.0.0.1:{metrics}",
            "goodbye_grace_s": 12.5,
        }
    )


@asynccontextmanager
async def running(config: AgentSettings, fakes: Fakes) -> AsyncIterator[Agent]:
    """An agent that runs while the context is open and is stopped in order at its end."""
    stop = asyncio.Event()
    agent = Agent(config, build=fakes.build)
    task = asyncio.create_task(agent.run(stop), name="agent under test")
    try:
        yield agent
    finally:
        stop.set()
        async with asyncio.timeout(30):
            await task
        await settle()


@pytest.fixture
async def second() -> AsyncIterator[Controller]:
    server = Controller()
    await server.start()
    yield server
    await server.kill()


async def test_every_controller_hears_everything_and_a_goodbye(
    controller: Controller, second: Controller
) -> None:
    fakes = Fakes("c1", "c2")
    async with running(settings(controller.port, free_port(), second.port), fakes) as agent:
        streams = [agent.streams[f"127.0.0.1:{each.port}"] for each in (controller, second)]
        await until(lambda: all(stream.connected for stream in streams))
        fakes.on_event(CellEvent("c2", EventKind.ENGINE_DOWN, "refused"))
        await until(lambda: all(bool(each.of_kind("event")) for each in (controller, second)))
        stopped = clock.now()
    assert clock.now() - stopped < 15.0, "the controller that is away is not waited for"
    for each in (controller, second):
        hello = each.of_kind("hello")[0]
        assert (hello.node, hello.site, [cell.cell_id for cell in hello.cells]) == (
            "host-1",
            "berlin",
            ["c1", "c2"],
        )
        assert hello.incarnation > 1_600_000_000_000_000_000
        assert [(told.cell_id, told.cause) for told in each.of_kind("event")] == [("c2", "refused")]
        assert each.kinds()[-1] == "goodbye"
        assert (each.of_kind("goodbye")[0].planned, each.of_kind("goodbye")[0].grace_ms) == (True, 12_500)


async def test_a_drain_is_answered_to_the_controller_that_asked(
    controller: Controller, second: Controller
) -> None:
    fakes = Fakes("c1", "c2")
    async with running(settings(controller.port, second.port), fakes) as agent:
        await until(lambda: all(stream.connected for stream in agent.streams.values()))
        drain = pb.Drain(cell_id="c1", cause="operator", deadline_ms=60_000)
        await controller.send(pb.ControllerMessage(directive=pb.Directive(drain=drain)))
        # It is finished once several pages read since it began say so.
        async with asyncio.timeout(30):
            while not controller.of_kind("event"):
                fakes.engines["c1"].read(0, clock.now())
                await asyncio.sleep(0.3)
        assert second.of_kind("event") == []
    (finished,) = controller.of_kind("event")
    assert (finished.kind, finished.cell_id) == (pb.CELL_EVENT_KIND_DRAIN_FINISHED, "c1")


async def test_gateways_of_all_controllers_are_measured_and_reported(
    controller: Controller, second: Controller
) -> None:
    controller.gateways = [pb.Gateway(id="g1", host="127.0.0.1")]
    second.gateways = [pb.Gateway(id="g2", host="127.0.0.2", port=443), pb.Gateway(id="g1", host="127.0.0.1")]
    fakes = Fakes("c1", "c2")
    async with running(settings(controller.port, second.port), fakes):
        await until(lambda: [each.id for each in fakes.paths.gateways] == ["g1", "g2"])
        await until(lambda: any(len(beat.paths) == 2 for beat in controller.of_kind("telemetry")))


async def test_nothing_is_said_before_the_engines_were_looked_at(controller: Controller) -> None:
    fakes = Fakes("c1", "c2")
    fakes.engines["c2"].first_seen.clear()
    async with running(settings(controller.port), fakes):
        await asyncio.sleep(0.4)
        assert controller.streams == []
        fakes.engines["c2"].first_seen.set()
        await until(lambda: bool(controller.streams) and bool(controller.of_kind("telemetry")))
    assert [cell.cell_id for cell in controller.of_kind("telemetry")[0].cells] == ["c1", "c2"]


async def test_an_engine_that_gives_no_sign_holds_the_others_up_for_a_bounded_time(
    controller: Controller,
) -> None:
    fakes = Fakes("c1", "c2")
    fakes.engines["c2"].first_seen.clear()
    async with running(settings(controller.port), fakes):
        await until(lambda: bool(controller.streams) and bool(controller.of_kind("telemetry")))
    assert [cell.cell_id for cell in controller.of_kind("telemetry")[0].cells] == ["c1"]


async def fetch(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


async def test_own_pages(controller: Controller) -> None:
    fakes = Fakes("c1", "c2")
    fakes.engines["c1"].read(3, clock.now() - 2.0)
    failed = SourceReading("engine", Status.FAILED)
    fakes.engines["c2"].now = type(fakes.engines["c2"].now)(fakes.engines["c2"].now.state, source=failed)
    port, away = free_port(), free_port()
    name, other = f"127.0.0.1:{controller.port}", f"127.0.0.1:{away}"
    async with running(settings(controller.port, away, metrics=port), fakes) as agent:
        await until(lambda: agent.streams[name].connected and agent.streams[name].beats_sent > 3)
        status, health = await fetch(port, "/healthz")
        assert status == 200
        assert f'"{name}": true' in health
        assert f'"{other}": false' in health
        status, page = await fetch(port, "/metrics")
    assert status == 200
    figures: dict[str, Any] = dict(
        line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#")
    )
    assert float(figures[f'headrace_agent_beats_sent_total{{controller="{name}"}}']) > 3
    assert figures[f'headrace_agent_connected{{controller="{name}"}}'] == "1.0"
    assert figures[f'headrace_agent_connected{{controller="{other}"}}'] == "0.0"
    assert figures[f'headrace_agent_events_unacked{{controller="{other}"}}'] == "0.0"
    assert figures['headrace_agent_source_ok{cell="c1",source="engine"}'] == "1.0"
    assert figures['headrace_agent_source_reads_total{cell="c1",source="engine"}'] == "5.0"
    assert figures['headrace_agent_source_failures_total{cell="c1",source="engine"}'] == "2.0"
    assert figures['headrace_agent_source_reads_total{cell="",source="dcgm"}'] == "7.0"
    assert figures[f'headrace_agent_events_dropped_total{{controller="{name}"}}'] == "0.0"
    assert figures['headrace_agent_source_ok{cell="c2",source="engine"}'] == "0.0"
    assert 2.0 <= float(figures['headrace_agent_source_age_seconds{cell="c1",source="engine"}']) < 60.0
    assert 'headrace_agent_source_age_seconds{cell="c2",source="engine"}' not in figures, "never read: absent"


async def test_a_port_in_use_stops_the_start(controller: Controller) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        taken = settings(controller.port, metrics=held.getsockname()[1])
        with pytest.raises(PortInUseError, match="metrics_listen"):
            await Agent(taken, build=Fakes("c1", "c2").build).run(asyncio.Event())
    assert controller.streams == []


async def test_systemd_is_told(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(30):
            async with running(settings(controller.port), Fakes("c1", "c2")):
                assert (await loop.sock_recv(systemd, 200)).splitlines()[0] == b"READY=1"
            assert await loop.sock_recv(systemd, 100) == b"STOPPING=1"


async def test_a_collector_that_breaks_is_started_again_and_takes_nothing_else_with_it(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containment, "FIRST_PAUSE_S", 0.05)
    fakes, port, starts = Fakes("c1", "c2"), free_port(), 0

    async def break_down() -> None:
        nonlocal starts
        starts += 1
        raise RuntimeError("broken")

    fakes.engines["c1"].run = break_down  # type: ignore[method-assign]
    with capture_logs() as logs:
        async with running(settings(controller.port, metrics=port), fakes) as agent:
            (stream,) = agent.streams.values()
            await until(lambda: stream.connected and starts >= 3)
            told = len(controller.of_kind("telemetry"))
            await until(lambda: len(controller.of_kind("telemetry")) >= told + 3)
            _, page = await fetch(port, "/metrics")
    beat = controller.of_kind("telemetry")[-1]
    assert [cell.cell_id for cell in beat.cells] == ["c1", "c2"]
    said = [line["part"] for line in logs if line["event"] == "unexpected error, contained"]
    assert said == ["engine c1"]
    (counted,) = [line for line in page.splitlines() if line.startswith("headrace_agent_mishaps_total{")]
    assert counted.startswith('headrace_agent_mishaps_total{part="engine c1"} ')
    assert float(counted.split()[-1]) >= 3


async def test_a_collector_whose_reading_breaks_costs_its_own_figures_only(controller: Controller) -> None:
    """One engine's page once ended the agent, and every cell of the node fell silent."""
    fakes = Fakes("c1", "c2")

    def break_down(now: float) -> EngineReading:
        raise OverflowError("cannot convert float infinity to integer")

    fakes.engines["c1"].reading = break_down  # type: ignore[method-assign]
    async with running(settings(controller.port), fakes):
        await until(lambda: bool(controller.streams) and len(controller.of_kind("telemetry")) >= 3)
    bad, good = controller.of_kind("telemetry")[-1].cells
    assert (bad.engine_state, good.engine_state) == (pb.ENGINE_STATE_SERVING, pb.ENGINE_STATE_SERVING)
    assert bad.sources[0].status == pb.SOURCE_STATUS_FAILED
    assert "OverflowError" in bad.sources[0].detail
    assert (bad.HasField("in_flight"), good.in_flight) == (False, 1)
    assert len(controller.streams) == 1
