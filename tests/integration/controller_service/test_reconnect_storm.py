"""Fifty agents that come and go without end leave nothing behind, and the control loop keeps its beat."""

from __future__ import annotations

import asyncio
import gc

import grpc

from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import CellTelemetryStub
from headrace_shared.clock import SystemClock
from tests.integration.controller_service.node import Node, speaking
from tests.integration.controller_service.running import Running, serving, settings_of, until

AGENTS = 50
STORM_S = 4.0
clock = SystemClock()


async def come_and_go(port: int, number: int, end: float) -> int:
    """One agent that connects, speaks and leaves in ever other ways until `end`; how often."""
    rounds = 0
    while clock.now() < end:
        # Each has a connection of its own, as agents have.
        own = (("grpc.use_local_subchannel_pool", 1),)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=own) as channel:
            for way in range(3):
                call = CellTelemetryStub(channel).Stream(timeout=60)
                node = Node(call, f"n{number}", [f"c{number}"])
                await leave(node, (way + number + rounds) % 4)
                rounds += 1
    return rounds


async def leave(node: Node, way: int) -> None:
    """Open a stream and end it: by cancelling, by half-closing, with a Goodbye, or before the Welcome."""
    if way == 3:
        await node.call.write(pb.AgentMessage(hello=pb.Hello(node=node.name, site="s", incarnation=1)))
        node.call.cancel()
        return
    await node.serve()
    if way == 0:
        node.call.cancel()
        return
    if way == 2:
        goodbye = pb.Goodbye(seq=node.seq + 1, planned=True, grace_ms=100)
        await node.call.write(pb.AgentMessage(goodbye=goodbye))
    await node.call.done_writing()
    async with asyncio.timeout(30):
        assert await node.call.code() is grpc.StatusCode.OK


def tasks() -> list[str]:
    """Tasks of the controller's own making."""
    return sorted(task.get_name() for task in asyncio.all_tasks() if not task.get_name().startswith("Task-"))


async def ticks(running: Running) -> float:
    _, page = await running.get("/metrics")
    (line,) = [line for line in page.splitlines() if line.startswith("headrace_tick_seconds_count ")]
    return float(line.split()[1])


async def test_a_storm_of_reconnects_leaves_nothing_behind() -> None:
    async with serving(settings_of()) as running:
        before, began = tasks(), await ticks(running)
        end = clock.now() + STORM_S
        rounds = await asyncio.gather(*(come_and_go(running.telemetry, n, end) for n in range(AGENTS)))
        assert min(rounds) >= 3
        assert await ticks(running) - began >= 10, "the loop ticks every 50 ms where nothing is in its way"

        async def gone() -> bool:
            return tasks() == before

        await until(gone)
        ask = pb.ControllerMessage()
        assert [n for n in range(AGENTS) if running.controller.send(f"n{n}", ask)] == []
        async with speaking(running.telemetry, "heir", [f"c{n}" for n in range(AGENTS)]) as heir:
            await heir.hello()
            assert heir.welcome is not None
            assert list(heir.welcome.refused) == [], "no session holds a cell any more"
        again = await ticks(running)

        async def goes_on() -> bool:
            return await ticks(running) > again

        await until(goes_on)
        status, _ = await running.get("/readyz")
        assert status == 200
        assert len(await running.cells()) == AGENTS
    gc.collect()  # an exception that nobody took would be reported now, and fail the test
