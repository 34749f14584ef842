"""Several controllers at once: each has a fate of its own, and none is the others'."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import grpc
import pytest

from headrace_agent.collectors.readings import CellEvent, EventKind
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.integration.agent_heartbeat.controller import Controller, until
from tests.integration.agent_heartbeat.test_agent import clock, running, settings
from tests.support.agent_sources import Fakes
from tests.support.ports import free_port


@pytest.fixture
async def five() -> AsyncIterator[list[Controller]]:
    """Five controllers that listen."""
    async with AsyncExitStack() as stack:
        servers = [Controller() for _ in range(5)]
        for server in servers:
            await server.start()
            stack.push_async_callback(server.kill)
            stack.callback(server.reads.set)
        yield servers


async def test_a_dead_a_deaf_a_refusing_and_a_mute_one_cost_the_good_one_nothing(
    five: list[Controller],
) -> None:
    good, deaf, refusing, mute, good_too = five
    deaf.reads.clear()
    refusing.abort = (grpc.StatusCode.FAILED_PRECONDITION, "an agent that started later is connected")
    mute.welcomes = mute.acks = False
    fakes = Fakes("c1", "c2")
    ports = [free_port(), deaf.port, refusing.port, mute.port, good.port, good_too.port]
    async with running(settings(*ports), fakes) as agent:
        fine = [agent.streams[f"127.0.0.1:{each.port}"] for each in (good, good_too)]
        await until(lambda: all(stream.connected for stream in fine))
        told = len(good.of_kind("telemetry"))
        began = clock.now()
        await until(lambda: len(good.of_kind("telemetry")) >= told + 10)
        print(f"ten beats of 100 ms in {clock.now() - began:.2f} s")
        fakes.on_event(CellEvent("c1", EventKind.ENGINE_DOWN, "refused"))
        await until(lambda: all(bool(each.of_kind("event")) for each in (good, good_too)))
        await until(lambda: all(stream.events_unacked == 0 for stream in fine))
        ill = [stream for stream in agent.streams.values() if stream not in fine]
        assert [stream.connected for stream in ill] == [False] * 4
        assert [stream.events_unacked for stream in ill] == [1] * 4
        # Whoever comes to its senses hears what it missed.
        refusing.abort = None
        deaf.reads.set()
        for each in (refusing, deaf):
            await until(lambda each=each: any(each.of_kind("event", s) for s in range(len(each.streams))))
        stopped = clock.now()
    assert clock.now() - stopped < 15.0, "the mute one is not waited for"
    assert [each.kinds()[-1] for each in (good, good_too)] == ["goodbye"] * 2
    assert len(good.streams) == len(good_too.streams) == 1


async def test_each_controller_has_the_cadence_that_it_asked_for(five: list[Controller]) -> None:
    quick, slow = five[:2]
    quick.telemetry_ms, slow.telemetry_ms = 100, 800
    slow.liveness_ms = 400
    async with running(settings(quick.port, slow.port), Fakes("c1", "c2")) as agent:
        await until(lambda: all(stream.connected for stream in agent.streams.values()))
        first = [len(each.of_kind("telemetry")) for each in (quick, slow)]
        await until(lambda: len(slow.of_kind("telemetry")) >= first[1] + 3)
        beats = [
            len(each.of_kind("telemetry")) - before for each, before in zip((quick, slow), first, strict=True)
        ]
        assert beats[0] >= 3 * beats[1], beats
        assert len(quick.of_kind("liveness")) > 3 * len(slow.of_kind("liveness"))


async def test_a_cadence_asked_later_is_for_that_controller_alone(five: list[Controller]) -> None:
    changed, other = five[:2]
    async with running(settings(changed.port, other.port), Fakes("c1", "c2")) as agent:
        await until(lambda: all(stream.connected for stream in agent.streams.values()))
        cadence = pb.Cadence(telemetry_interval_ms=60_000, liveness_interval_ms=200)
        await changed.send(pb.ControllerMessage(directive=pb.Directive(cadence=cadence)))

        async def falls_silent() -> bool:
            """Whether it told next to nothing while the other told eight times."""
            before = len(changed.of_kind("telemetry")), len(other.of_kind("telemetry"))
            await until(lambda: len(other.of_kind("telemetry")) >= before[1] + 8)
            return len(changed.of_kind("telemetry")) <= before[0] + 1

        # The directive may take a moment.
        assert any([await falls_silent() for _ in range(3)])
        assert await falls_silent()
        assert changed.kinds().count("liveness") > 0


async def test_a_drain_is_the_affair_of_the_controller_that_asked(five: list[Controller]) -> None:
    """Another region's gateways may go on using the cell; what a drain needs is told to all alike."""
    asking, other = five[:2]
    fakes = Fakes("c1", "c2")
    async with running(settings(asking.port, other.port), fakes) as agent:
        await until(lambda: all(stream.connected for stream in agent.streams.values()))
        drain = pb.Drain(cell_id="c1", cause="operator", deadline_ms=400)
        await asking.send(pb.ControllerMessage(directive=pb.Directive(drain=drain)))
        await until(lambda: bool(asking.of_kind("event")))
        beats = len(other.of_kind("telemetry"))
        await until(lambda: len(other.of_kind("telemetry")) >= beats + 3)
        assert other.of_kind("event") == []
        told = [
            {cell.cell_id: cell.engine_state for cell in each.of_kind("telemetry")[-1].cells}
            for each in (asking, other)
        ]
        assert told[0] == told[1] == dict.fromkeys(("c1", "c2"), pb.ENGINE_STATE_SERVING)
