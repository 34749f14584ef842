"""Which gateways are measured, and names that resolve, fail, or never answer."""

from __future__ import annotations

import threading

import pytest
from structlog.testing import capture_logs

from headrace_agent.collectors.network import names
from headrace_agent.collectors.network.collector import MAX_GATEWAYS, GatewayTarget, PathCollector
from headrace_agent.collectors.network.names import CACHE_S, RETRY_S, Resolver, UnresolvedError
from headrace_agent.settings import NetworkSettings
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
        self.addresses = addresses
        self.asked: list[str] = []
        self.answering = threading.Event()
        self.answering.set()

    def __call__(self, host: str) -> str:
        self.asked.append(host)
        self.answering.wait(5)
        if host not in self.addresses:
            raise OSError(-2, "Name or service not known")
        return self.addresses[host]


@pytest.mark.parametrize("address", ["10.0.0.1", "::1", "2001:db8::1"])
async def test_an_address_needs_no_name_server(address: str) -> None:
    server = NameServer()
    assert await Resolver(FakeClock(), server).resolve(address) == address
    assert server.asked == []


async def test_a_name_is_looked_up_once_a_minute() -> None:
    clock, server = FakeClock(), NameServer(gw="10.0.0.1")
    resolver = Resolver(clock, server)
    for _ in range(3):
        assert await resolver.resolve("gw") == "10.0.0.1"
        clock.advance(CACHE_S / 4)
    assert server.asked == ["gw"]


async def test_a_name_that_fails_later_keeps_its_last_address() -> None:
    clock, server = FakeClock(), NameServer(gw="10.0.0.1")
    resolver = Resolver(clock, server)
    await resolver.resolve("gw")
    server.addresses.clear()
    clock.advance(CACHE_S + 1)
    assert await resolver.resolve("gw") == "10.0.0.1"


async def test_a_name_that_never_was_fails_in_words_and_is_asked_again_later() -> None:
    clock, server = FakeClock(), NameServer()
    resolver = Resolver(clock, server)
    for _ in range(3):
        with pytest.raises(UnresolvedError, match="gw cannot be resolved: Name or service not known"):
            await resolver.resolve("gw")
    assert server.asked == ["gw"]
    server.addresses["gw"] = "10.0.0.2"
    clock.advance(RETRY_S + 1)
    assert await resolver.resolve("gw") == "10.0.0.2"


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
