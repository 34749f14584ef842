"""Controllers that come, go, stay and change while the agent runs; and what the agent says of itself."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from headrace_agent.collectors.readings import CellEvent, EventKind
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.integration.agent_heartbeat.controller import Controller, until
from tests.integration.agent_reload.crews import running, settings_for
from tests.support.ports import free_port


def down(cause: str) -> CellEvent:
    return CellEvent("c1", EventKind.ENGINE_DOWN, cause)


async def test_a_new_controller_is_spoken_to_and_the_other_notices_nothing(
    controller: Controller, second: Controller
) -> None:
    async with running(settings_for(controller.port)) as desk:
        await desk.reload(settings_for(controller.port, second.port))
        await until(lambda: bool(second.streams) and bool(second.of_kind("telemetry")))
        desk.crews.first.on_event(down("both hear it"))
        await until(lambda: all(bool(each.of_kind("event")) for each in (controller, second)))
        assert len(controller.streams) == 1
    assert [each.of_kind("goodbye")[0].planned for each in (controller, second)] == [True, True]


async def test_a_controller_that_is_dropped_is_told_that_it_has_the_cells_no_more(
    controller: Controller, second: Controller
) -> None:
    """Left alone it would go on sending requests to cells of which it hears nothing."""
    second.gateways = [pb.Gateway(id="g2", host="127.0.0.2")]
    async with running(settings_for(controller.port, second.port)) as desk:
        await until(lambda: bool(desk.crews.first.paths.gateways))
        await desk.reload(settings_for(controller.port))
        await until(lambda: second.kinds()[-1] == "goodbye")
        # Its gateways are measured no more.
        await until(lambda: desk.crews.first.paths.gateways == [])
        await until(lambda: list(desk.agent.streams) == [f"127.0.0.1:{controller.port}"])
        told = len(controller.of_kind("telemetry"))
        await until(lambda: len(controller.of_kind("telemetry")) > told + 2)
    assert [each for each in second.kinds() if each in ("hello", "goodbye")][-2:] == ["hello", "goodbye"]
    assert list(second.of_kind("hello")[-1].cells) == []
    assert second.of_kind("goodbye")[0].planned is False
    assert "no longer in the agent's config" in second.of_kind("goodbye")[0].reason
    assert len(second.streams) == 1
    assert len(controller.streams) == 1


async def test_the_gateways_of_a_dropped_controller_go_with_nobody_there_to_say_so(
    controller: Controller, second: Controller
) -> None:
    second.gateways = [pb.Gateway(id="g2", host="127.0.0.2")]
    async with running(settings_for(controller.port, second.port)) as desk:
        await until(lambda: bool(desk.crews.first.paths.gateways))
        await controller.kill()
        second.welcomes = False
        await desk.reload(settings_for(controller.port))
        await until(lambda: desk.crews.first.paths.gateways == [])


async def test_a_controller_that_comes_back_hears_events_under_new_ids(
    controller: Controller, second: Controller
) -> None:
    """It takes no id twice from one incarnation: what began at 1 again would be thrown away."""
    both = settings_for(controller.port, second.port)
    async with running(both) as desk:
        for cause in ("a", "b"):
            desk.crews.first.on_event(down(cause))
        await until(lambda: len(second.of_kind("event")) == 2)
        await desk.reload(settings_for(controller.port))
        await until(lambda: second.kinds()[-1] == "goodbye")
        desk.crews.first.on_event(down("unheard"))
        await desk.reload(both)
        await until(lambda: len(second.streams) == 2 and bool(second.of_kind("telemetry")))
        desk.crews.first.on_event(down("c"))
        await until(lambda: bool(second.of_kind("event")))
    (again,) = second.of_kind("event")
    assert (again.cause, again.event_id) == ("c", 3)


async def test_a_controller_that_changes_is_dialled_anew_and_hears_what_it_missed(
    controller: Controller, second: Controller, tmp_path: Path
) -> None:
    """TLS that it does not speak cuts it off; with the old settings back, nothing is lost."""
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    plain = settings_for(controller.port, second.port)
    entries: Any = [
        {"address": f"127.0.0.1:{controller.port}", "tls": {"ca": str(tmp_path / "ca.pem")}},
        {"address": f"127.0.0.1:{second.port}"},
    ]
    async with running(plain) as desk:
        desk.crews.first.on_event(down("before"))
        await until(lambda: len(controller.of_kind("event")) == 1)
        # Until it knows that it was heard, the agent would tell it again.
        await until(lambda: desk.agent.streams[f"127.0.0.1:{controller.port}"].events_unacked == 0)
        await desk.reload(
            plain.model_copy(update={"controllers": settings_for(controllers=entries).controllers})
        )
        changed = desk.agent.streams[f"127.0.0.1:{controller.port}"]
        await until(lambda: not changed.connected)
        desk.crews.first.on_event(down("meanwhile"))
        await desk.reload(plain)
        await until(lambda: len(controller.streams) == 2 and bool(controller.of_kind("event")))
        assert len(second.streams) == 1
    assert [(each.cause, each.event_id) for each in controller.of_kind("event")] == [("meanwhile", 2)]


async def fetch(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


def value(page: str, name: str) -> float:
    (line,) = [line for line in page.splitlines() if line.startswith(name + " ")]
    return float(line.split()[-1])


async def test_a_reload_that_is_refused_changes_nothing_and_can_be_seen(controller: Controller) -> None:
    port = free_port()
    config = settings_for(controller.port, metrics_listen=f"127.0.0.1:{port}")
    async with running(config) as desk:
        _, before = await fetch(port, "/healthz")
        hellos = len(controller.of_kind("hello"))
        with capture_logs() as logs:
            desk.file = settings_for(
                controller.port, cells=("c2", "c3"), site="elsewhere", metrics_listen="127.0.0.1:1"
            )
            desk.asked.set()
            await until(lambda: any("refused" in line["event"] for line in logs))
        assert desk.agent.settings == config
        assert len(controller.of_kind("hello")) == hellos
        status, after = await fetch(port, "/healthz")
        assert status == 200
        assert "site: cannot change from 'berlin' to 'elsewhere'" in json.loads(after)["reload"]
        assert json.loads(after)["config"] == json.loads(before)["config"]
        _, page = await fetch(port, "/metrics")
        assert value(page, 'headrace_agent_reloads_total{result="refused"}') == 1
        assert value(page, "headrace_agent_last_reload_ok") == 0
        await desk.reload(config.model_copy(update={"goodbye_grace_s": 7.0}))
        _, page = await fetch(port, "/metrics")
        assert value(page, "headrace_agent_last_reload_ok") == 1
        assert value(page, 'headrace_agent_reloads_total{result="applied"}') == 1
        assert json.loads((await fetch(port, "/healthz"))[1])["config"] != json.loads(before)["config"]
    assert controller.of_kind("goodbye")[0].grace_ms == 7000, "the new grace is the one that counts"
    said = " ".join(next(line["why"] for line in logs if "refused" in line["event"]))
    assert "metrics_listen: cannot change" in said


async def test_ready_is_when_a_controller_hears_and_alive_is_without(controller: Controller) -> None:
    port = free_port()
    config = settings_for(controller.port, metrics_listen=f"127.0.0.1:{port}")
    async with running(config):
        assert (await fetch(port, "/readyz"))[0] == 200
        await controller.kill()
        async with asyncio.timeout(30):
            while (await fetch(port, "/readyz"))[0] != 503:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert (await fetch(port, "/healthz"))[0] == 200
        _, body = await fetch(port, "/readyz")
        assert json.loads(body)["reasons"] == [f"no controller is connected: 127.0.0.1:{controller.port}"]


async def test_systemd_hears_of_every_turn(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "600000")
        heard: list[str] = []

        async def hear() -> None:
            while True:
                heard.append((await asyncio.get_running_loop().sock_recv(systemd, 4096)).decode())

        listening = asyncio.create_task(hear(), name="systemd")
        async with running(settings_for(controller.port)) as desk:
            await until(lambda: heard.count("WATCHDOG=1") >= 3)
            await desk.reload(settings_for(controller.port, cells=("c1",)))
            await until(lambda: any("last reload applied" in each for each in heard))
        await until(lambda: "STOPPING=1" in heard)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    turns = [each.splitlines() for each in heard if each != "WATCHDOG=1"]
    assert [each[0] for each in turns] == ["READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]
    assert turns[0][1].startswith("STATUS=node host-1: 2 cells, 1 controllers, config ")
    assert turns[1][1].startswith("MONOTONIC_USEC=")
    assert int(turns[1][1].partition("=")[2]) > 0
    assert turns[2][1].startswith("STATUS=node host-1: 1 cells")
