"""A generic gRPC client finds out what the two ports serve and whether they are well."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from headrace_controller.projection import Plan
from headrace_controller.wire.introspection import WireIntrospection
from tests.integration.controller_service.running import serving, settings_of
from tests.support.gateway_port import GatewayPort

TELEMETRY = "headrace.v1.CellTelemetry"
ADS = "envoy.service.discovery.v3.AggregatedDiscoveryService"
EDS = "envoy.service.endpoint.v3.EndpointDiscoveryService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Generic:
    """A client that was compiled against nothing: it asks the server what there is."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._stub = reflection_pb2_grpc.ServerReflectionStub(channel)

    async def services(self) -> set[str]:
        answer = await self._ask(list_services="")
        return {each.name for each in answer.list_services_response.service}

    async def pool(self, symbol: str) -> descriptor_pool.DescriptorPool:
        """Every file that `symbol` needs, as the server gives them."""
        answer = await self._ask(file_containing_symbol=symbol)
        found: dict[str, descriptor_pb2.FileDescriptorProto] = {}
        waiting = list(answer.file_descriptor_response.file_descriptor_proto)
        while waiting:
            file = descriptor_pb2.FileDescriptorProto.FromString(waiting.pop())
            if file.name in found:
                continue
            found[file.name] = file
            for name in file.dependency:
                if name not in found:
                    more = await self._ask(file_by_filename=name)
                    waiting.extend(more.file_descriptor_response.file_descriptor_proto)
        pool = descriptor_pool.DescriptorPool()
        for name in list(found):
            _add(pool, found, name, set())
        return pool

    async def _ask(self, **what: str) -> Any:
        call = self._stub.ServerReflectionInfo(timeout=60)
        await call.write(reflection_pb2.ServerReflectionRequest(**what))
        answer = await call.read()
        await call.done_writing()
        assert not answer.HasField("error_response"), answer
        return answer


def _add(pool: Any, found: dict[str, Any], name: str, done: set[str]) -> None:
    """Add a file after those that it needs."""
    try:
        pool.FindFileByName(name)
    except KeyError:
        for each in found[name].dependency:
            _add(pool, found, each, done)
        pool.Add(found[name])


async def test_both_ports_say_what_they_serve_and_that_they_are_well() -> None:
    async with serving(settings_of()) as running:
        for port, expected in ((running.telemetry, {TELEMETRY}), (running.xds, {ADS, EDS})):
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                found = await Generic(channel).services()
                assert expected <= found
                assert {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= found
                health = health_pb2_grpc.HealthStub(channel)
                for service in ("", *expected):
                    answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
                    assert answer.status == SERVING, service
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await health.Check(health_pb2.HealthCheckRequest(service="no.Such"), timeout=60)
                assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_a_client_that_knows_no_message_can_subscribe() -> None:
    """What `grpcurl` does: messages made of what the server says they are."""
    async with (
        serving(settings_of()) as running,
        grpc.aio.insecure_channel(f"127.0.0.1:{running.xds}") as channel,
    ):
        pool = await Generic(channel).pool(ADS)
        request = message_factory.GetMessageClass(
            pool.FindMessageTypeByName("envoy.service.discovery.v3.DiscoveryRequest")
        )
        response = message_factory.GetMessageClass(
            pool.FindMessageTypeByName("envoy.service.discovery.v3.DiscoveryResponse")
        )
        method = channel.stream_stream(
            f"/{ADS}/StreamAggregatedResources",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        running.controller.publish(Plan())
        call = method(timeout=60)
        cds = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
        await call.write(request(type_url=cds, node={"id": "gw-1"}))
        assert (await call.read()).type_url == cds
        call.cancel()


async def test_a_watcher_hears_of_the_end_and_one_that_does_not_read_delays_nobody() -> None:
    introspection = WireIntrospection([ADS])
    port = GatewayPort(more=introspection.methods())
    number = await port.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{number}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(service=ADS), timeout=60)
        assert (await watch.read()).status == SERVING
        idle = health.Watch(health_pb2.HealthCheckRequest(service=ADS), timeout=60)
        async with asyncio.timeout(30):
            introspection.close()
            assert (await watch.read()).status == NOT_SERVING
            watch.cancel()
            idle.cancel()
            await port.stop(0.1)
