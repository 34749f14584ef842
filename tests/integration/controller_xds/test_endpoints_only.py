"""The endpoint discovery service, for Envoys that have the rest of their configuration from elsewhere."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2
from envoy.service.endpoint.v3 import eds_pb2_grpc
from structlog.testing import capture_logs

from headrace_controller.xds.names import CDS, EDS
from tests.integration.controller_xds.client import (
    AdsServer,
    delta_connected,
    endpoints_connected,
    running,
    until,
)
from tests.unit.controller.xds.builders import builder_of, plan_of, weights_of

A, B = "10.0.0.1:8000", "10.0.0.2:8000"


async def test_a_cluster_gets_the_endpoints_of_its_pool() -> None:
    builder = builder_of()
    async with running(AdsServer("gw-1")) as server, endpoints_connected(server.port) as envoy:
        await envoy.ask("", "pool/m")
        await until(lambda: server.xds.status()["gw-1"].connected)
        assert server.xds.status()["gw-1"].pushes == 0, "nothing before the first publish"
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 1}, "n": {B: 1}})))
        response = await envoy.take()
        assert (response.type_url, [weights_of(box) for box in response.resources]) == (EDS, [{A: 1}])
        await envoy.ack(response, "pool/m")
        await until(lambda: server.xds.status()["gw-1"].types["EDS"].in_force)
        assert not server.xds.status()["gw-1"].types["CDS"].in_force, "it does not take clusters"
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 1}, "n": {B: 2}})))
        assert server.xds.status()["gw-1"].types["EDS"].in_force, (
            "another pool's weights are not its business"
        )
        await envoy.ask(CDS)
        assert await envoy.silent()


async def test_an_unknown_pool_has_no_endpoints_and_is_said_once() -> None:
    builder = builder_of()
    with capture_logs() as lines:
        async with running(AdsServer("gw-1")) as server, endpoints_connected(server.port) as envoy:
            server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 1}})))
            await envoy.ask(EDS, "m")
            response = await envoy.take()
            assert [weights_of(box) for box in response.resources] == [{}]
            await envoy.ack(response, "m")
            await until(lambda: server.xds.status()["gw-1"].unknown == ("m",))
            server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 2}})))
            await asyncio.sleep(0.1)
            said = [line for line in lines if "endpoints of a pool" in line["event"]]
            assert [(line["asked"], line["pools"], line["gateway"]) for line in said] == [
                (["m"], ["pool/m"], "gw-1")
            ]
            await envoy.ask(EDS, "pool/m")
            await envoy.ack(await envoy.take(), "pool/m")
            await until(lambda: server.xds.status()["gw-1"].unknown == ())


async def test_endpoints_come_by_delta_too() -> None:
    builder = builder_of()
    server = AdsServer("gw-1")
    async with running(server), delta_connected(server.port, endpoints_only=True) as envoy:
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 1}})))
        await envoy.ask("", "pool/m", "pool/late")
        response = await envoy.take()
        assert {each.name: weights_of(each.resource) for each in response.resources} == {
            "pool/m": {A: 1},
            "pool/late": {},
        }
        await envoy.ack(response)
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 1}, "late": {B: 3}})))
        response = await envoy.take()
        assert {each.name: weights_of(each.resource) for each in response.resources} == {"pool/late": {B: 3}}


async def test_polling_is_refused_with_the_remedy() -> None:
    async with (
        running(AdsServer("gw-1")) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        stub = eds_pb2_grpc.EndpointDiscoveryServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.FetchEndpoints(discovery_pb2.DiscoveryRequest(), timeout=60)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert "api_type: GRPC" in (caught.value.details() or "")
