"""What the telemetry port says of itself: its health, and by reflection its services and their messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from headrace_controller.wire.call import Call, Method
from headrace_controller.wire.messages import CallFault, Status

HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
MAX_QUEUED: Final = 16
MAX_WATCHERS: Final = 256


class WireIntrospection:
    """Health (grpc.health.v1) and reflection (v1alpha). Every service is SERVING until `close`."""

    def __init__(self, services: Sequence[str]) -> None:
        self._reflection = reflection.ReflectionServicer([*services, HEALTH, reflection.SERVICE_NAME])
        self._status = dict.fromkeys(("", *services), health_pb2.HealthCheckResponse.SERVING)
        self._watchers: dict[Call, str] = {}

    def methods(self) -> dict[str, Method]:
        """What is served, by gRPC path."""
        return {
            f"/{HEALTH}/Check": lambda call: _Check(self, call),
            f"/{HEALTH}/List": lambda call: _List(self, call),
            f"/{HEALTH}/Watch": lambda call: _Watch(self, call),
            f"/{reflection.SERVICE_NAME}/ServerReflectionInfo": lambda call: _Reflect(self, call),
        }

    def close(self) -> None:
        """Say that nothing is served any more, for the rest of the server's life."""
        for service in self._status:
            self._status[service] = health_pb2.HealthCheckResponse.NOT_SERVING
        for call, service in list(self._watchers.items()):
            self._tell(call, service)

    def status(self, service: str) -> Any:
        """A service's health; None of one that is not known."""
        return self._status.get(service)

    def all(self) -> Any:
        """The health of every service."""
        found = {name: health_pb2.HealthCheckResponse(status=each) for name, each in self._status.items()}
        return health_pb2.HealthListResponse(statuses=found)

    def watch(self, call: Call, service: str) -> None:
        """Tell a service's health now, and whenever it changes."""
        if len(self._watchers) >= MAX_WATCHERS:
            raise CallFault(Status.RESOURCE_EXHAUSTED, "too many watch already")
        self._watchers[call] = service
        self._tell(call, service)

    def watches(self, call: Call) -> bool:
        """Whether the call has asked."""
        return call in self._watchers

    def unwatch(self, call: Call) -> None:
        """The call has ended."""
        self._watchers.pop(call, None)

    def reflect(self, request: Any) -> list[Any]:
        """The answers to a question about services and messages."""
        return list(self._reflection.ServerReflectionInfo(iter([request]), None))

    def _tell(self, call: Call, service: str) -> None:
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        status = self._status.get(service, unknown)
        call.send(health_pb2.HealthCheckResponse(status=status).SerializeToString())


class _Call:
    """What the methods have in common."""

    def __init__(self, desk: WireIntrospection, call: Call) -> None:
        self._desk = desk
        self._call = call

    def half_closed(self) -> None:
        self._call.end(Status.OK)

    def closed(self) -> None:
        self._desk.unwatch(self._call)


class _Check(_Call):
    def message(self, data: bytes) -> None:
        status = self._desk.status(_read(health_pb2.HealthCheckRequest, data).service)
        if status is None:
            raise CallFault(Status.NOT_FOUND, "")
        self._call.send(health_pb2.HealthCheckResponse(status=status).SerializeToString())
        self._call.finish(Status.OK)


class _List(_Call):
    def message(self, data: bytes) -> None:
        _read(health_pb2.HealthListRequest, data)
        self._call.send(self._desk.all().SerializeToString())
        self._call.finish(Status.OK)


class _Watch(_Call):
    def message(self, data: bytes) -> None:
        if self._desk.watches(self._call):
            raise CallFault(Status.INTERNAL, "one question a call")
        self._desk.watch(self._call, _read(health_pb2.HealthCheckRequest, data).service)

    def half_closed(self) -> None:
        """The one question was asked; the answers go on."""


class _Reflect(_Call):
    def message(self, data: bytes) -> None:
        if self._call.queued >= MAX_QUEUED:
            raise CallFault(Status.RESOURCE_EXHAUSTED, "read the answers before asking on")
        for answer in self._desk.reflect(_read(reflection_pb2.ServerReflectionRequest, data)):
            self._call.send(answer.SerializeToString())

    def half_closed(self) -> None:
        self._call.finish(Status.OK)


def _read(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise CallFault(Status.INTERNAL, "the message is none of this protocol") from None
