"""Health and reflection: what they keep of callers is bounded."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from headrace_controller.wire.introspection import MAX_QUEUED, MAX_WATCHERS, WireIntrospection
from headrace_controller.wire.messages import CallFault, Status

REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
WATCH = "/grpc.health.v1.Health/Watch"


def test_one_that_asks_and_does_not_read_is_stopped() -> None:
    call = Mock(queued=MAX_QUEUED - 1)
    receiver = WireIntrospection(["s"]).methods()[REFLECT](call)
    question = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    receiver.message(question)
    answer = reflection_pb2.ServerReflectionResponse.FromString(call.send.call_args.args[0])
    assert "s" in [each.name for each in answer.list_services_response.service]
    call.queued = MAX_QUEUED
    with pytest.raises(CallFault) as caught:
        receiver.message(question)
    assert caught.value.status is Status.RESOURCE_EXHAUSTED


def test_watchers_are_bounded_and_forgotten_when_they_leave() -> None:
    desk = WireIntrospection(["s"])
    question = health_pb2.HealthCheckRequest(service="s").SerializeToString()
    receivers = [desk.methods()[WATCH](Mock()) for _ in range(MAX_WATCHERS + 1)]
    for each in receivers[:-1]:
        each.message(question)
    with pytest.raises(CallFault):
        receivers[-1].message(question)
    receivers[0].closed()
    receivers[-1].message(question)


def test_a_watcher_asks_once() -> None:
    """Each further question would be answered, and the answers to one that does not read pile up."""
    call = Mock()
    receiver = WireIntrospection(["s"]).methods()[WATCH](call)
    question = health_pb2.HealthCheckRequest(service="s").SerializeToString()
    receiver.message(question)
    with pytest.raises(CallFault):
        receiver.message(question)
    assert call.send.call_count == 1
