"""`headrace-controller run` as its operator meets it: a process, its ports, its exit code and its log."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import aiohttp
import grpc
import pytest

from headrace_controller.xds.names import CDS
from tests.integration.controller_cli.program import (
    CONFIG,
    PORTS,
    controller,
    free_ports,
    run,
    started,
    write,
)
from tests.integration.controller_service.node import speaking
from tests.integration.controller_xds.client import connected
from tests.support.program import EXIT_LIMIT_S, assert_free


@pytest.fixture
def ports() -> dict[str, int]:
    return free_ports()


@pytest.fixture
def config(tmp_path: Path, ports: dict[str, int]) -> Path:
    return write(tmp_path, CONFIG.format(**ports))


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_in_order(config: Path, ports: dict[str, int], sent: signal.Signals) -> None:
    async with controller(config) as running:
        code, seconds = await running.terminate(sent)
    assert code == 0
    assert seconds < EXIT_LIMIT_S
    assert running.lines[-1]["event"] == "stopping"
    assert running.other == [], "the log holds nothing but its own lines"
    for port in ports.values():
        assert_free(port)


async def test_sigterm_ends_it_with_agents_envoys_and_operators_connected(
    config: Path, ports: dict[str, int]
) -> None:
    async with controller(config) as running, speaking(ports["telemetry"]) as node:
        await node.serve()
        async with connected(ports["xds"]) as envoy:
            await envoy.ask(CDS)
            await envoy.ack(await envoy.take(10))
            _, operator = await asyncio.open_connection("127.0.0.1", ports["admin"])
            operator.write(b"GET /api/v1/cells HTTP/1.1\r\n")
            code, seconds = await running.terminate()
            operator.close()
            assert await envoy.call.code() is grpc.StatusCode.UNAVAILABLE
    assert code == 0
    assert seconds < EXIT_LIMIT_S
    assert running.other == []
    for port in ports.values():
        assert_free(port)


@pytest.fixture
def hung_disk(config: Path) -> None:
    """Whoever opens the file to write waits for a reader, who never comes."""
    state = config.parent / "state"
    state.mkdir()
    os.mkfifo(state / "fleet.new")
    config.write_text(config.read_text() + f"state_dir: {state}\nlifecycle: {{barrier_s: 0}}\n")


@pytest.mark.usefixtures("hung_disk")
async def test_sigterm_ends_it_while_the_disk_hangs(config: Path, ports: dict[str, int]) -> None:
    """A thread that waits for the disk must not hold up the end of the process."""
    async with controller(config) as running, speaking(ports["telemetry"]) as node:
        await node.serve()
        await running.logged(event="state", after="READY")
        await asyncio.sleep(1.5)
        code, seconds = await running.terminate()
    assert code == 0
    assert seconds < EXIT_LIMIT_S
    assert running.other == []


@pytest.mark.parametrize("name", PORTS)
def test_a_port_in_use_is_named_with_its_setting(config: Path, ports: dict[str, int], name: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", ports[name]))
        held.listen()
        ended = run("run", "--config", config)
    assert ended.returncode == 1, "systemd tries again, unless it is 2"
    assert f"listen.{name}: 127.0.0.1:{ports[name]} is already in use" in ended.stderr
    assert f"ss -ltnp 'sport = :{ports[name]}'" in ended.stderr
    assert "choose another port" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_address_that_the_host_has_not_yet_is_named_with_its_setting(config: Path) -> None:
    write(config.parent, config.read_text().replace("xds: 127.0.0.1:", "xds: 203.0.113.1:"))
    ended = run("run", "--config", config)
    assert ended.returncode == 1, "a host may get its address a moment later"
    assert "listen.xds: cannot listen on 203.0.113.1:" in ended.stderr
    assert "Traceback" not in ended.stderr


BROKEN_TICK = """\
from headrace_controller.control.loop import ControlLoop
def broken(self, now, lateness=0.0):
    raise RuntimeError("planted")
ControlLoop.tick = broken
"""


async def test_a_control_loop_that_breaks_ends_the_program_and_says_so(
    config: Path, ports: dict[str, int]
) -> None:
    """A controller that answers but no longer decides is worse than none: its supervisor restarts it."""
    async with started(config, BROKEN_TICK) as running:
        assert await running.ended() == 1
    line = await running.logged(event="task failed")
    assert (line["task"], line["error"]) == ("control loop", "RuntimeError('planted')")
    assert running.lines[-1]["event"].startswith("the controller failed")
    assert "in broken" in running.lines[-1]["exception"], "where it broke"
    assert running.other == []
    for port in ports.values():
        assert_free(port)


async def test_sighup_takes_up_a_changed_file_and_refuses_a_bad_one(
    config: Path, ports: dict[str, int]
) -> None:
    before = CONFIG.format(**ports)
    async with controller(config) as running:
        write(config.parent, before + "projection: {deadband: 0.3}\npressure: {scorer: v2}\n")
        running.process.send_signal(signal.SIGHUP)
        line = await running.logged(event="settings reloaded")
        assert line["changed"] == ["pressure.scorer", "projection.deadband"]
        write(config.parent, before + "nonsense: 1\nregion: [2]\n")
        running.process.send_signal(signal.SIGHUP)
        line = await running.logged(event="reload refused; the settings of before stay in force")
        assert any("nonsense: unknown key" in each for each in line["why"])
        assert any("region" in each for each in line["why"]), "all that is wrong, at once"
        code, _ = await running.terminate()
    assert code == 0
    assert running.other == []


async def test_sighup_takes_up_a_token_that_was_changed(config: Path, ports: dict[str, int]) -> None:
    """The settings stay the same; a token that was taken back must not let anybody in."""
    token = config.parent / "token"
    token.write_text("a" * 20)
    named = f"admin: {{tokens: [{{name: anna, role: viewer, file: {token}}}]}}\n"
    write(config.parent, CONFIG.format(**ports) + named)
    async with controller(config) as running, aiohttp.ClientSession() as session:

        async def status(secret: str) -> int:
            headers = {"Authorization": f"Bearer {secret * 20}"}
            url = f"http://127.0.0.1:{ports['admin']}/api/v1/status"
            async with session.get(url, headers=headers) as answer:
                return answer.status

        assert (await status("a"), await status("b")) == (200, 401)
        token.write_text("b" * 20)
        running.process.send_signal(signal.SIGHUP)
        await running.logged(event="settings reloaded")
        assert (await status("a"), await status("b")) == (401, 200)
        code, _ = await running.terminate()
    assert code == 0
