"""Paths by TCP connect, over loopback."""

from __future__ import annotations

import asyncio
import socket

import pytest
from structlog.testing import capture_logs

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.names import look_up
from headrace_agent.collectors.network.collector import MAX_GATEWAYS, GatewayTarget, PathCollector
from headrace_agent.collectors.network.echo import SYN_AGAIN_S, Echo, Outcome, TcpProber
from headrace_agent.collectors.readings import PathMethod
from headrace_agent.settings import NetworkSettings
from headrace_shared.clock import SystemClock
from tests.integration.agent_network.support import alive, dead, measuring, not_slower_than
from tests.support.ports import free_port

PATIENT_S = 5.0
"""A connection on loopback takes no longer on a busy machine, too."""


async def listen(host: str = "127.0.0.1", port: int = 0) -> tuple[asyncio.Server, int]:
    server = await asyncio.start_server(lambda _, writer: writer.close(), host, port)
    return server, server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_a_listening_gateway_has_a_round_trip(host: str) -> None:
    server, port = await listen(look_up(host)[0])
    async with server, measuring("tcp", GatewayTarget("gw", host, port), timeout_s=PATIENT_S) as paths:
        reading = await paths.until("gw", alive)
    assert reading.method is PathMethod.TCP_CONNECT
    assert reading.rtt_ms is not None
    assert 0.0 < reading.rtt_ms < 1000 * PATIENT_S
    assert reading.loss == 0.0


async def test_a_closed_port_is_dead_alone_told_once_and_comes_back() -> None:
    port = free_port()
    server, good = await listen()
    with capture_logs() as logs:
        async with (
            server,
            measuring(
                "tcp", GatewayTarget("bad", "127.0.0.1", port), GatewayTarget("good", "127.0.0.1", good)
            ) as paths,
        ):
            reading = await paths.until("bad", dead)
            assert (reading.rtt_ms, reading.jitter_ms) == (None, None)
            await paths.until("good", alive)
            await asyncio.sleep(0.3)
            again, _ = await listen("127.0.0.1", port)
            async with again:
                await paths.until("bad", lambda reading: reading.rtt_ms is not None)
    told = [each["condition"] for each in logs if each.get("gateway") == "bad"]
    assert told == ["dead", "alive"]


@pytest.mark.parametrize(("timeout_s", "lost_after_s"), [(0.2, 0.2), (20.0, SYN_AGAIN_S)])
async def test_a_gateway_that_never_answers_is_lost_before_the_kernel_asks_again(
    timeout_s: float, lost_after_s: float
) -> None:
    """A listener with a full backlog leaves a connect unanswered, as a black hole does."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        held = []
        for _ in range(4):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
            held.append(sock)
        try:
            clock = SystemClock()
            began = clock.now()
            echo = await TcpProber(clock).echo("127.0.0.1", port, timeout_s)
            assert echo.outcome.value == "lost"
            assert f"no connection within {lost_after_s:g} s" in echo.detail
            assert clock.now() - began < lost_after_s + 5.0
        finally:
            for sock in held:
                sock.close()


async def test_many_dead_gateways_do_not_slow_down_a_live_one() -> None:
    server, good = await listen()
    bad = [GatewayTarget(f"bad{number}", "127.0.0.1", free_port()) for number in range(12)]
    async with server, measuring("tcp", *bad, GatewayTarget("good", "127.0.0.1", good)) as paths:
        await paths.until("bad0", dead)
        for _ in range(5):
            first = (await paths.until("good", alive)).measured_at
            assert first is not None
            await paths.until("good", lambda reading, first=first: reading.measured_at != first)  # type: ignore[misc]


async def test_as_many_gateways_as_can_be_do_not_look_slower_than_one() -> None:
    """All at once they would show their own work: 25 ms and more on loopback."""
    server, port = await listen()
    many = [GatewayTarget(f"gw{number}", "127.0.0.1", port) for number in range(MAX_GATEWAYS)]
    async with server:
        async with measuring("tcp", many[0]) as paths:
            alone = (await paths.until("gw0", alive)).rtt_ms
        assert alone is not None
        async with measuring("tcp", *many) as paths:
            await not_slower_than(alone, paths, many)


async def test_gateways_that_all_fall_silent_do_not_hold_up_the_living() -> None:
    """Each loss is waited for, by no one but its own path."""
    server, good = await listen()
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        silent = [GatewayTarget(f"bad{number}", "127.0.0.1", full.getsockname()[1]) for number in range(30)]
        async with server, measuring("tcp", *silent, GatewayTarget("good", "127.0.0.1", good)) as paths:
            await paths.until("bad29", dead)
            first = (await paths.until("good", alive)).measured_at
            await paths.until("good", lambda reading: reading.measured_at != first, 6.0)


async def test_gateways_come_and_go_while_running() -> None:
    server, port = await listen()
    one, two = GatewayTarget("one", "127.0.0.1", port), GatewayTarget("two", "127.0.0.1", port)
    async with server, measuring("tcp", one) as paths:
        await paths.until("one", alive)
        paths.collector.set_gateways([two])
        await paths.until("two", alive)
        assert [each.gateway for each in paths.collector.readings(paths.clock.now())] == ["two"]
        paths.collector.set_gateways([])
        async with asyncio.timeout(30):
            while any(task.get_name().startswith("network path") for task in asyncio.all_tasks()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "gateway", [GatewayTarget("gw", "127.0.0.1", 0), GatewayTarget("gw", "127.0.0.1", 70000)]
)
async def test_without_a_port_the_path_is_unknown_and_not_dead(gateway: GatewayTarget) -> None:
    with capture_logs() as logs:
        async with measuring("tcp", gateway) as paths:
            async with asyncio.timeout(30):
                while not logs:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.4)
            reading = paths.reading("gw")
    assert (reading.rtt_ms, reading.loss, reading.measured_at) == (None, None, None)
    assert [each["condition"] for each in logs] == ["cannot be measured"]


async def test_switched_off_the_collector_waits_and_measures_nothing() -> None:
    async with measuring("off", GatewayTarget("gw", "127.0.0.1", 1)) as paths:
        await asyncio.sleep(0.05)
        assert paths.collector.readings(paths.clock.now()) == ()


class Broken:
    """A way to measure that fails as nobody foresaw, until it is mended."""

    method = PathMethod.TCP_CONNECT

    def __init__(self) -> None:
        self.asked = 0
        self.mended = False

    async def echo(self, address: str, port: int, timeout_s: float) -> Echo:
        self.asked += 1
        if self.mended:
            return Echo(Outcome.REPLY, self.method, 1.0)
        raise KeyError("nobody foresaw this")


async def test_an_unexpected_error_is_said_once_and_counted_at_each_try() -> None:
    prober, mishaps = Broken(), Mishaps()
    settings = NetworkSettings(interval_s=0.1)
    collector = PathCollector(settings, SystemClock(), probers=[prober], mishaps=mishaps)
    collector.set_gateways([GatewayTarget("gw", "127.0.0.1", 1)])
    with capture_logs() as logs:
        task = asyncio.create_task(collector.run(), name="paths")
        while prober.asked < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        prober.mended = True
        while collector.readings(SystemClock().now())[0].rtt_ms is None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    said = [line for line in logs if line["event"] == "unexpected error, contained"]
    assert [line["part"] for line in said] == ["network: path to gw"]
    assert mishaps.counts["network: path to gw"] >= 4
