"""What a gRPC port says of itself: its health, and by reflection its services and their messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

CLOSE_TIMEOUT_S = 0.5


class Introspection:
    """Health (grpc.health.v1) and reflection for the services that a server has.

    Every service is SERVING until `close`. Both stand behind the port's TLS as all else does.
    """

    def __init__(self, services: Sequence[str]) -> None:
        self._services = tuple(services)
        self._health = health.aio.HealthServicer()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with a server that does not run yet."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            [*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME], server
        )

    async def open(self) -> None:
        """Say that the services are served."""
        for service in self._services:
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)

    async def close(self) -> None:
        """Say that they are not, for the rest of the server's life."""
        try:
            # A watcher that does not read holds the lock.
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._health.enter_graceful_shutdown()
        except TimeoutError:
            return
