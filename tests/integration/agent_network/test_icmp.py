"""Paths by ICMP: needs root (or CAP_NET_RAW), and `ip` for the namespaces."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import icmplib.sockets
import pytest
from icmplib import SocketPermissionError

from headrace_agent.collectors.network import echo as echo_module
from headrace_agent.collectors.network.collector import GatewayTarget
from headrace_agent.collectors.network.echo import IcmpProber, Outcome
from headrace_agent.collectors.readings import PathMethod
from headrace_shared.clock import SystemClock
from tests.integration.agent_network.support import alive, measuring

pytestmark = pytest.mark.extra


@pytest.mark.parametrize("method", ["auto", "icmp"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_loopback_answers(method: str, host: str) -> None:
    async with measuring(method, GatewayTarget("gw", host, 0)) as paths:
        reading = await paths.until("gw", alive)
    assert reading.method is PathMethod.ICMP
    assert reading.rtt_ms is not None
    assert 0.0 < reading.rtt_ms < 200.0
    assert reading.loss == 0.0


async def test_echoes_at_the_same_time_do_not_take_each_others_replies() -> None:
    """Two agents on one host, with the same process id in their containers: each has its own numbers."""
    probers = [IcmpProber(SystemClock()) for _ in range(2)]
    echoes = await asyncio.gather(*(each.echo("127.0.0.1", 0, 1.0) for each in probers * 5))
    assert {each.outcome for each in echoes} == {Outcome.REPLY}


async def test_a_wall_clock_that_jumps_drops_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = SystemClock(), [0]

    def stepped() -> float:
        calls[0] += 1
        return real.wall_ns() / 1e9 + (0.25 if calls[0] > 2 else 0.0)

    monkeypatch.setattr(icmplib.sockets, "time", stepped)
    echo = await IcmpProber(SystemClock()).echo("127.0.0.1", 0, 1.0)
    assert echo.outcome is Outcome.DROPPED
    assert echo.rtt_ms is None


async def test_where_icmp_is_not_allowed_tcp_stands_in_and_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str) -> None:
        raise SocketPermissionError(True)

    monkeypatch.setattr(echo_module, "_open", refuse)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    gateway = GatewayTarget("gw", "127.0.0.1", server.sockets[0].getsockname()[1])
    async with server:
        async with measuring("auto", gateway) as paths:
            assert (await paths.until("gw", alive)).method is PathMethod.TCP_CONNECT
        async with measuring("icmp", gateway) as paths:
            await asyncio.sleep(0.4)
            assert paths.reading("gw").loss is None, "not allowed to measure is not dead"


PROGRAM = """
import asyncio
from tests.integration.agent_network.support import alive, dead, measuring
from headrace_agent.collectors.network.collector import GatewayTarget
from headrace_shared import log

async def main():
    async with measuring("icmp", GatewayTarget("gw", "10.213.7.2", 0)) as paths:
        await paths.until("gw", alive)
        print("alive", flush=True)
        await paths.until("gw", dead, 15.0)
        print("dead", paths.reading("gw").rtt_ms, flush=True)
        await paths.until("gw", alive, 15.0)
        print("alive again", flush=True)

log.configure()  # stdout is for the test
asyncio.run(main())
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=10)


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Two network namespaces joined by a cable: 10.213.7.1 and 10.213.7.2."""
    near, far = f"hr{os.getpid()}a", f"hr{os.getpid()}b"
    made = []
    try:
        for name in (near, far):
            ip("netns", "add", name)
            made.append(name)
        ip("-n", near, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", far)
        for name, address in ((near, "10.213.7.1/24"), (far, "10.213.7.2/24")):
            ip("-n", name, "addr", "add", address, "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        yield near, far
    finally:
        for name in made:
            ip("netns", "del", name)


def test_a_cable_that_is_pulled_kills_the_path_and_plugging_it_in_revives_it(
    namespaces: tuple[str, str],
) -> None:
    near, far = namespaces
    command = ["ip", "netns", "exec", near, sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        try:
            assert agent.stdout.readline() == "alive\n"
            ip("-n", far, "link", "set", "cable", "down")
            assert agent.stdout.readline() == "dead None\n"
            ip("-n", far, "link", "set", "cable", "up")
            assert agent.stdout.readline() == "alive again\n"
            assert agent.wait(10) == 0
        finally:
            agent.kill()
