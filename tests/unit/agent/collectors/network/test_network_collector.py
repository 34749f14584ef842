"""Which gateways are measured, and names that resolve, fail, or never answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from headrace_agent.collectors import names
from headrace_agent.collectors.names import (
    CACHE_S,
    RETRY_S,
    Lookup,
    Resolver,
    UnresolvedError,
    look_up,
)
from headrace_agent.collectors.network.collector import (
    DEAD_NAME_S,
    MAX_GATEWAYS,
    GatewayTarget,
    PathCollector,
)
from headrace_agent.collectors.network.echo import Echo, Outcome
from headrace_agent.collectors.network.pace import SPACING_S, Pace
from headrace_agent.collectors.network.policy import Return
from headrace_agent.collectors.readings import PathMethod
from headrace_agent.settings import NetworkSettings
from headrace_shared.clock import SystemClock
from tests.support.clock import FakeClock


def collector(method: str = "auto") -> PathCollector:
    return PathCollector(NetworkSettings.model_validate({"method": method}), FakeClock())


def gateways(*ids: str) -> list[GatewayTarget]:
    return [GatewayTarget(each, "10.0.0.1", 80) for each in ids]


def test_the_gateways_named_last_are_those_that_are_read() -> None:
    paths = collector()
    assert paths.readings(0.0) == ()
    paths.set_gateways(gateways("a", "b"))
    paths.set_gateways(gateways("c", "b"))
    assert [each.gateway for each in paths.readings(0.0)] == ["c", "b"]


def test_a_gateway_named_twice_is_measured_once() -> None:
    paths = collector()
    paths.set_gateways(gateways("a", "a"))
    assert len(paths.readings(0.0)) == 1


def test_more_gateways_than_can_be_are_cut_and_said() -> None:
    paths = collector()
    with capture_logs() as logs:
        paths.set_gateways(gateways(*(f"g{number}" for number in range(MAX_GATEWAYS + 5))))
    assert len(paths.readings(0.0)) == MAX_GATEWAYS
    assert logs[0]["named"] == MAX_GATEWAYS + 5


def test_switched_off_there_are_no_paths() -> None:
    paths = collector("off")
    paths.set_gateways(gateways("a"))
    assert paths.readings(0.0) == ()


class NameServer:
    """Answers from a table; a name that is not in it fails."""

    def __init__(self, **addresses: str) -> None:
        self.addresses = {name: (address,) for name, address in addresses.items()}
        self.asked: list[str] = []
        self.answering = threading.Event()
        self.answering.set()

    def __call__(self, host: str) -> tuple[str, ...]:
        self.asked.append(host)
        self.answering.wait(5)
        if host not in self.addresses:
            raise OSError(-2, "Name or service not known")
        return self.addresses[host]


@pytest.mark.parametrize("address", ["10.0.0.1", "::1", "2001:db8::1"])
async def test_an_address_needs_no_name_server(address: str) -> None:
    server = NameServer()
    assert await Resolver(FakeClock(), server).resolve(address) == (address,)
    assert server.asked == []


async def test_a_name_is_looked_up_once_a_minute() -> None:
    clock, server = FakeClock(), NameServer(gw="10.0.0.1")
    resolver = Resolver(clock, server)
    for _ in range(3):
        assert await resolver.resolve("gw") == ("10.0.0.1",)
        clock.advance(CACHE_S / 4)
    assert server.asked == ["gw"]


async def test_a_name_that_fails_later_keeps_its_last_address() -> None:
    clock, server = FakeClock(), NameServer(gw="10.0.0.1")
    resolver = Resolver(clock, server)
    await resolver.resolve("gw")
    server.addresses.clear()
    clock.advance(CACHE_S + 1)
    assert await resolver.resolve("gw") == ("10.0.0.1",)


async def test_a_name_that_never_was_fails_in_words_and_is_asked_again_later() -> None:
    clock, server = FakeClock(), NameServer()
    resolver = Resolver(clock, server)
    for _ in range(3):
        with pytest.raises(UnresolvedError, match="gw cannot be resolved: Name or service not known"):
            await resolver.resolve("gw")
    assert server.asked == ["gw"]
    server.addresses["gw"] = ("10.0.0.2",)
    clock.advance(RETRY_S + 1)
    assert await resolver.resolve("gw") == ("10.0.0.2",)


async def test_a_name_that_python_cannot_encode_is_a_failure_like_any_other() -> None:
    with pytest.raises(UnresolvedError, match="cannot be resolved"):
        await Resolver(FakeClock()).resolve("a" * 64 + "\u00fc" * 300)


async def test_a_silent_name_server_holds_up_nobody_and_takes_few_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(names, "WAIT_S", 0.0)
    server = NameServer()
    server.answering.clear()
    resolver = Resolver(FakeClock(), server)
    for number in range(10):
        for _ in range(2):
            with pytest.raises(UnresolvedError, match="does not answer"):
                await resolver.resolve(f"gw{number}")
    assert len(server.asked) <= names.MAX_LOOKUPS
    server.answering.set()


async def test_a_name_may_hold_addresses_of_both_ip_versions() -> None:
    both = ("2001:db8::1", "10.0.0.1")
    assert await Resolver(FakeClock(), lambda host: both).resolve("gw") == both


async def test_a_name_without_addresses_is_a_failure() -> None:
    with pytest.raises(UnresolvedError, match="it has no address"):
        await Resolver(FakeClock(), lambda host: ()).resolve("gw")


async def test_a_name_that_moved_is_heard_of_within_the_age_asked_for() -> None:
    clock, server = FakeClock(), NameServer(gw="10.0.0.1")
    resolver = Resolver(clock, server)
    await resolver.resolve("gw")
    server.addresses["gw"] = ("10.0.0.2",)
    clock.advance(15.0)
    assert await resolver.resolve("gw") == ("10.0.0.1",)
    await resolver.resolve("gw", max_age_s=15.0)  # asks, and does not wait for what it can do without
    for _ in range(10_000):
        if await resolver.resolve("gw") == ("10.0.0.2",):
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the new address was not heard of")


class Scripted:
    """A prober that answers at some addresses, and notes who was asked and by whom at once."""

    method = PathMethod.ICMP

    def __init__(self, *alive: str) -> None:
        self.alive = set(alive)
        self.asked: list[str] = []

    async def echo(self, address: str, port: int, timeout_s: float) -> Echo:
        self.asked.append(address)
        if address in self.alive:
            return Echo(Outcome.REPLY, self.method, 10.0)
        return Echo(Outcome.LOST, self.method, detail="no reply")


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come about")


@asynccontextmanager
async def running(prober: Scripted, lookup: Lookup, *targets: GatewayTarget) -> AsyncIterator[PathCollector]:
    clock = SystemClock()
    paths = PathCollector(
        NetworkSettings(interval_s=0.1), clock, probers=[prober], resolver=Resolver(clock, lookup)
    )
    paths.set_gateways(targets)
    task = asyncio.create_task(paths.run(), name="paths")
    try:
        yield paths
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def rtt(paths: PathCollector) -> float | None:
    return paths.readings(SystemClock().now())[0].rtt_ms


async def test_a_gateway_whose_first_address_is_a_black_hole_is_measured_by_its_second() -> None:
    prober = Scripted("10.0.0.1")
    async with running(
        prober, lambda host: ("2001:db8::1", "10.0.0.1"), GatewayTarget("gw", "gw.example", 0)
    ) as paths:
        await until(lambda: rtt(paths) == 10.0)
        seen = len(prober.asked)
        await until(lambda: len(prober.asked) >= seen + 3)
    assert prober.asked[:2] == ["2001:db8::1", "10.0.0.1"]
    assert set(prober.asked[2:]) == {"10.0.0.1"}


async def test_a_gateway_taken_out_and_put_back_starts_anew() -> None:
    prober, target = Scripted("10.0.0.1"), GatewayTarget("gw", "10.0.0.1", 0)
    async with running(prober, look_up, target) as paths:
        await until(lambda: rtt(paths) == 10.0)
        paths.set_gateways([])
        paths.set_gateways([target])
        assert rtt(paths) is None
        await until(lambda: rtt(paths) == 10.0)
        names_of_tasks = [task.get_name() for task in asyncio.all_tasks()]
        assert names_of_tasks.count("network path gw") == 1


async def test_the_name_of_a_gateway_whose_path_is_dead_is_asked_for_sooner() -> None:
    ages: list[float] = []

    class Noting(Resolver):
        async def resolve(self, host: str, max_age_s: float = CACHE_S) -> tuple[str, ...]:
            ages.append(max_age_s)
            return ("10.0.0.1",)

    clock = SystemClock()
    paths = PathCollector(
        NetworkSettings(interval_s=0.1), clock, probers=[Scripted()], resolver=Noting(clock)
    )
    paths.set_gateways([GatewayTarget("gw", "gw.example", 0)])
    task = asyncio.create_task(paths.run(), name="paths")
    await until(lambda: DEAD_NAME_S in ages)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert ages[0] == CACHE_S


class Standing(Scripted):
    """A stand-in that always answers."""

    method = PathMethod.TCP_CONNECT

    async def echo(self, address: str, port: int, timeout_s: float) -> Echo:
        return Echo(Outcome.REPLY, self.method, 20.0)


async def test_a_path_on_a_stand_in_returns_to_the_preferred_way_when_that_answers_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Return, "FIRST_S", 0.2)
    icmp, clock = Scripted(), SystemClock()
    paths = PathCollector(NetworkSettings(interval_s=0.1), clock, probers=[icmp, Standing()])
    paths.set_gateways([GatewayTarget("gw", "10.0.0.1", 0)])
    task = asyncio.create_task(paths.run(), name="paths")
    await until(lambda: rtt(paths) == 20.0)
    icmp.alive.add("10.0.0.1")
    await until(lambda: rtt(paths) == 10.0)
    assert paths.readings(clock.now())[0].method is PathMethod.ICMP
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_turns_keep_their_distance_and_a_cancelled_one_is_not_spent() -> None:
    clock = SystemClock()
    pace, at = Pace(clock), []

    async def take() -> None:
        await pace.turn()
        at.append(clock.now())

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(take(), name=f"turn {number}") for number in range(6)]
        await asyncio.sleep(0)
        tasks[3].cancel()
    assert len(at) == 5
    assert all(later - earlier >= SPACING_S * 0.95 for earlier, later in pairwise(at))
