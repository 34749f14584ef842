"""Paths by ICMP: needs root (or CAP_NET_RAW), and `ip` for the namespaces."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import icmplib.sockets
import pytest
from icmplib import ICMPRequest, ICMPv4Socket, SocketPermissionError

from headrace_agent.collectors.network import echo as echo_module
from headrace_agent.collectors.network.collector import MAX_GATEWAYS, GatewayTarget
from headrace_agent.collectors.network.echo import IcmpProber, Outcome
from headrace_agent.collectors.readings import PathMethod
from headrace_shared.clock import SystemClock
from tests.integration.agent_network.support import alive, measuring, not_slower_than

pytestmark = pytest.mark.extra

PATIENT_S = 5.0
"""An echo on loopback takes no longer on a busy machine, too."""


@pytest.mark.parametrize("method", ["auto", "icmp"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_loopback_answers(method: str, host: str) -> None:
    async with measuring(method, GatewayTarget("gw", host, 0), timeout_s=PATIENT_S) as paths:
        reading = await paths.until("gw", alive)
    assert reading.method is PathMethod.ICMP
    assert reading.rtt_ms is not None
    assert 0.0 < reading.rtt_ms < 1000 * PATIENT_S
    assert reading.loss == 0.0


async def test_echoes_at_the_same_time_do_not_take_each_others_replies() -> None:
    """Two agents on one host, with the same process id in their containers: each has its own numbers."""
    probers = [IcmpProber(SystemClock()) for _ in range(2)]
    echoes = await asyncio.gather(*(each.echo("127.0.0.1", 0, PATIENT_S) for each in probers * 5))
    assert {each.outcome for each in echoes} == {Outcome.REPLY}


async def test_as_many_gateways_as_can_be_do_not_look_slower_than_one() -> None:
    hosts = [f"127.0.{number // 128}.{number % 128 + 1}" for number in range(MAX_GATEWAYS)]
    many = [GatewayTarget(host, host, 0) for host in hosts]
    async with measuring("icmp", many[0]) as paths:
        alone = (await paths.until(many[0].id, alive)).rtt_ms
    assert alone is not None
    async with measuring("icmp", *many) as paths:
        await not_slower_than(alone, paths, many)


async def test_a_raw_socket_hears_its_own_gateway_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that heard every reply would be woken by each echo of every other path."""
    base, heard = icmplib.sockets.ICMPSocket, []
    create, parse = base._create_packet, base._parse_reply
    another = 1

    def note(self: icmplib.sockets.ICMPSocket, packet: bytes, source: str, current_time: float) -> object:
        heard.append(packet)
        return parse(self, packet, source, current_time)

    def create_after_another(self: icmplib.sockets.ICMPSocket, *numbers: Any, **named: Any) -> object:
        if named.get("id") != another:
            with ICMPv4Socket() as other:
                other.send(ICMPRequest("127.0.0.9", another, 1))
        return create(self, *numbers, **named)

    monkeypatch.setattr(echo_module.secrets, "randbelow", lambda below: another + 1)
    monkeypatch.setattr(base, "_create_packet", create_after_another)
    monkeypatch.setattr(base, "_parse_reply", note)
    assert (await IcmpProber(SystemClock()).echo("127.0.0.1", 0, PATIENT_S)).outcome is Outcome.REPLY
    assert len(heard) <= 2, "on loopback there is its own request, and the reply to it"


async def test_a_cancellation_that_comes_with_the_reply_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is taken out would be measured for ever otherwise."""
    prober, tasks = IcmpProber(SystemClock()), []
    take = prober._take

    def take_and_cancel(*args: Any) -> object:
        reply = take(*args)
        if reply is not None:
            tasks[0].cancel()
        return reply

    monkeypatch.setattr(prober, "_take", take_and_cancel)
    tasks.append(asyncio.create_task(prober.echo("127.0.0.1", 0, PATIENT_S), name="echo"))
    await asyncio.wait(tasks, timeout=30.0)
    assert tasks[0].cancelled()


async def test_an_echo_that_is_not_answered_is_lost_when_its_time_is_up_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that comes is for others."""
    clock, prober = SystemClock(), IcmpProber(SystemClock())
    monkeypatch.setattr(prober, "_take", lambda *args: None)
    before, began = len(os.listdir("/proc/self/fd")), clock.now()
    echo = await prober.echo("127.0.0.1", 0, 0.2)
    assert (echo.outcome, echo.detail) == (Outcome.LOST, "no reply within 0.2 s")
    assert 0.2 <= clock.now() - began < 10.0
    assert len(os.listdir("/proc/self/fd")) == before


async def test_what_a_local_firewall_holds_back_says_nothing_about_the_path() -> None:
    """The kernel answers EACCES to an echo to a broadcast address, as it does for a firewall's rule."""
    echo = await IcmpProber(SystemClock()).echo("255.255.255.255", 0, 1.0)
    assert echo.outcome is Outcome.UNABLE
    assert "this host lets none out" in echo.detail


async def test_an_address_without_a_route_is_a_lost_path() -> None:
    echo = await IcmpProber(SystemClock()).echo("2001:db8::1", 0, 0.2)
    assert echo.outcome is Outcome.LOST


async def test_a_wall_clock_that_jumps_drops_the_sample() -> None:
    real, calls = SystemClock(), [0]

    class Stepped(SystemClock):
        def wall_ns(self) -> int:
            calls[0] += 1
            return real.wall_ns() + (250_000_000 if calls[0] > 1 else 0)

    echo = await IcmpProber(Stepped()).echo("127.0.0.1", 0, PATIENT_S)
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
        await paths.until("gw", dead)
        print("dead", paths.reading("gw").rtt_ms, flush=True)
        await paths.until("gw", alive)
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


PING_PROGRAM = """
import asyncio
from pathlib import Path
from headrace_agent.collectors.network import echo
from headrace_shared.clock import SystemClock

async def main():
    Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 0")  # of this namespace alone
    for _ in range(2):
        print((await echo.IcmpProber(SystemClock()).echo("10.213.7.2", 0, 5.0)).outcome.value)

echo._open = lambda address: echo.ICMPv4Socket(privileged=False)
asyncio.run(main())
"""


def test_the_kernels_ping_sockets_carry_echoes_where_raw_ones_are_not_allowed(
    namespaces: tuple[str, str],
) -> None:
    """They give an echo a number of their own."""
    command = ["ip", "netns", "exec", namespaces[0], sys.executable, "-c", PING_PROGRAM]
    assert subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout == (
        "reply\nreply\n"
    )


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
            assert agent.wait(30) == 0
        finally:
            agent.kill()
