"""An agent as the wire sees it: one stream, spoken by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import CellTelemetryStub

FULL = {"queue_depth": 1.0, "kv_fill": 0.2, "compute_active": 0.3}


class Node:
    """One node and its cells, whose engine is at `engine_port`."""

    def __init__(self, call: Any, name: str, cells: Iterable[str], engine_port: int = 1) -> None:
        self.call, self.name, self.cells = call, name, tuple(cells)
        self.engine_port = engine_port
        self.members: tuple[str, ...] = ()
        self.seq = 0
        self.welcome: pb.Welcome | None = None

    async def hello(self) -> None:
        """Say Hello and take the Welcome."""
        facts = [
            pb.CellFacts(
                cell_id=cell,
                address=pb.Address(host="127.0.0.1", port=self.engine_port),
                models=[pb.ModelFacts(id="m", max_model_len=4096)],
                member_nodes=self.members,
            )
            for cell in self.cells
        ]
        hello = pb.Hello(node=self.name, site="berlin", incarnation=1, cells=facts)
        await self.call.write(pb.AgentMessage(hello=hello))
        async with asyncio.timeout(30):
            self.welcome = (await self.call.read()).welcome

    async def beat(self, **signals: float) -> None:
        """A telemetry beat: every engine serves; only the signals given are present."""
        self.seq += 1
        beats = [
            pb.CellBeat(
                cell_id=cell,
                engine_state=pb.ENGINE_STATE_SERVING,
                serving_ms=600_000,
                signals=pb.Signals(**signals),
            )
            for cell in self.cells
        ]
        await self.call.write(pb.AgentMessage(telemetry=pb.Telemetry(seq=self.seq, cells=beats)))

    async def serve(self) -> None:
        """Hello, and a first full beat."""
        await self.hello()
        await self.beat(**FULL)

    async def keep_beating(self, interval_s: float = 0.1) -> None:
        """Beat until cancelled or the stream ends."""
        try:
            while True:
                await self.beat(**FULL)
                await asyncio.sleep(interval_s)
        except grpc.aio.AioRpcError:
            return


@asynccontextmanager
async def speaking(
    port: int,
    name: str = "n1",
    cells: Iterable[str] = ("c1",),
    *,
    credentials: grpc.ChannelCredentials | None = None,
    engine_port: int = 1,
) -> AsyncIterator[Node]:
    """A node with a stream of its own; it has not said Hello yet."""
    address = f"127.0.0.1:{port}"
    channel = (
        grpc.aio.insecure_channel(address)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials)
    )
    async with channel:
        call = CellTelemetryStub(channel).Stream(timeout=110)
        try:
            yield Node(call, name, cells, engine_port)
        finally:
            call.cancel()


@asynccontextmanager
async def beating(node: Node) -> AsyncIterator[None]:
    """Beats of `node` beside the test; it has said Hello."""
    task = asyncio.create_task(node.keep_beating(), name=f"beats of {node.name}")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
