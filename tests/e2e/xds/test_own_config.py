"""Endpoints only: an Envoy keeps its own configuration and takes the weights of one cluster from us."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace_controller.settings import EnvoySettings, GatewaySettings
from headrace_shared.net import HostPort
from tests.e2e.xds.cells import Cell, running_cells
from tests.e2e.xds.own_config import own_stack
from tests.e2e.xds.stack import GATEWAY, Control, Stack, Weights, until, until_async
from tests.e2e.xds.test_weights import share


@asynccontextmanager
async def running_control(pools: dict[str, Weights]) -> AsyncIterator[Control]:
    gateway = GatewaySettings(
        id=GATEWAY, nodes=("edge-*",), host="127.0.0.1", listen=HostPort("127.0.0.1", 1)
    )
    control = Control(gateway, EnvoySettings())
    await control.start()
    control.publish(pools)
    try:
        yield control
    finally:
        await control.stop()


async def addresses(stack: Stack) -> dict[str, int]:
    """The weights of the hosts that the Envoy's own cluster has."""
    return {address: host["weight"] for address, host in (await stack.envoy.hosts("llama")).items()}


@pytest.mark.parametrize("api_type", ["GRPC", "DELTA_GRPC"])
async def test_weights_are_honoured_and_change_at_once(tmp_path: Path, api_type: str) -> None:
    a, b = Cell("a"), Cell("b")
    pools: dict[str, Weights] = {"llama": {a: 90, b: 10}, "other": {b: 1}}
    async with (
        running_cells(a, b),
        running_control(pools) as control,
        own_stack(control, tmp_path, node="edge-7", api_type=api_type) as stack,
    ):
        assert await addresses(stack) == {a.address: 90, b.address: 10}
        assert await share(stack, a) == pytest.approx(90, abs=4)
        control.publish({"llama": {a: 10, b: 90}, "other": {b: 1}})
        await until(lambda: control.status.types["EDS"].in_force)
        assert await share(stack, a) == pytest.approx(10, abs=4)
        control.publish({"llama": {a: 10}, "other": {b: 1}})

        async def gone() -> bool:
            return await addresses(stack) == {a.address: 10}

        await until_async(gone)
        assert await share(stack, a, 50) == 100
        assert control.status.nacks == 0


@pytest.mark.parametrize("api_type", ["GRPC", "DELTA_GRPC"])
async def test_an_unknown_pool_lets_the_envoy_start_and_fills_when_it_comes(
    tmp_path: Path, api_type: str
) -> None:
    a = Cell("a")
    async with (
        running_cells(a),
        running_control({}) as control,
        own_stack(control, tmp_path, api_type=api_type) as stack,
    ):
        assert control.status.unknown == ("pool/llama",)
        assert (await stack.ask()).status == 503
        control.publish({"llama": {a: 1}})

        async def served() -> bool:
            return (await stack.ask()).status == 200

        await until_async(served)
        assert control.status.unknown == ()
        control.publish({})

        async def emptied() -> bool:
            return await addresses(stack) == {}

        await until_async(emptied)


@pytest.mark.parametrize("api_type", ["GRPC", "DELTA_GRPC"])
async def test_the_envoy_keeps_its_endpoints_while_the_controller_is_away(
    tmp_path: Path, api_type: str
) -> None:
    a, b = Cell("a"), Cell("b")
    async with (
        running_cells(a, b),
        running_control({"llama": {a: 90, b: 10}}) as control,
        own_stack(control, tmp_path, api_type=api_type) as stack,
    ):
        await until(lambda: control.status.types["EDS"].in_force)
        await control.stop()
        assert await share(stack, a, 100) == pytest.approx(90, abs=6)
        await control.start()
        await until(lambda: control.status.connected)
        await asyncio.sleep(0.3)
        assert control.status.pushes == 0, "nothing is sent before the first publish"
        control.publish({"llama": {a: 10, b: 90}})
        await until(lambda: control.status.types["EDS"].in_force)
        assert await share(stack, a, 100) == pytest.approx(10, abs=6)


async def test_an_envoy_of_no_gateway_is_told_so(tmp_path: Path) -> None:
    async with (
        running_control({"llama": {}}) as control,
        own_stack(control, tmp_path, node="stranger", wait=False),
    ):
        await until(lambda: "stranger" in control.server.strangers)
        log = tmp_path / "own.log"
        await until(lambda: "no gateway has the id 'stranger'" in log.read_text())
        assert "gw-test, edge-*" in log.read_text()
