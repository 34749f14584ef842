"""Health and reflection on the telemetry port, asked by real gRPC clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace_controller.ingest.service import SERVICE
from headrace_controller.wire.introspection import WireIntrospection
from headrace_controller.wire.server import WireServer
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort

Status = health_pb2.HealthCheckResponse


@asynccontextmanager
async def speaking() -> AsyncIterator[tuple[WireIntrospection, grpc.aio.Channel]]:
    desk = WireIntrospection([SERVICE])
    server = WireServer(desk.methods(), SystemClock())
    port = await server.start(HostPort("127.0.0.1", 0))
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield desk, channel
    finally:
        await server.stop(0.0)


async def check(health: Any, service: str) -> int:
    answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
    return int(answer.status)


async def test_services_are_well_until_the_end() -> None:
    async with speaking() as (desk, channel):
        health: Any = health_pb2_grpc.HealthStub(channel)
        assert [await check(health, each) for each in ("", SERVICE)] == [Status.SERVING] * 2
        listed = await health.List(health_pb2.HealthListRequest(), timeout=60)
        assert {name: each.status for name, each in listed.statuses.items()} == {
            "": Status.SERVING,
            SERVICE: Status.SERVING,
        }
        desk.close()
        assert await check(health, SERVICE) == Status.NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(health, "no.Such")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_watcher_hears_of_the_end() -> None:
    async with speaking() as (desk, channel):
        health: Any = health_pb2_grpc.HealthStub(channel)
        known = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=60)
        unknown = health.Watch(health_pb2.HealthCheckRequest(service="no.Such"), timeout=60)
        async with asyncio.timeout(30):
            assert (await known.read()).status == Status.SERVING
            assert (await unknown.read()).status == Status.SERVICE_UNKNOWN
            desk.close()
            assert (await known.read()).status == Status.NOT_SERVING
        known.cancel()
        unknown.cancel()


async def test_what_is_no_question_is_refused() -> None:
    async with speaking() as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/grpc.health.v1.Health/Check")(b"\xff\xff", timeout=60)
        assert caught.value.code() is grpc.StatusCode.INTERNAL
