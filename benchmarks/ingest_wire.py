"""What one liveness beat costs the controller's core: the telemetry port's own HTTP/2 against grpc.aio.

Each server runs alone, pinned to one core, and takes the same beats by the same intake from a generator on
another. CPU time of the process, user and system, over the beats that it took; in turns, the median of each.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import statistics
import time
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from typing import Any, Final

import grpc

from benchmarks.raw_stream import RawStream
from benchmarks.result import json_path, report
from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.service import TelemetryService
from headrace_controller.ingest.sessions import Session
from headrace_controller.wire.server import WireServer
from headrace_lab.stack.ports import free_ports
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import CellTelemetryServicer, add_CellTelemetryServicer_to_server
from headrace_shared import log
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from headrace_shared.rpc import SERVER_OPTIONS

STREAMS: Final = 200
BEATS_PER_S: Final = 4000
WARM_UP_S: Final = 1.0
MEASURED_S: Final = 4.0
REPEATS: Final = 3
CONNECT_WITHIN_S: Final = 60.0
_PATH: Final = "/headrace.v1.CellTelemetry/Stream"


class Nowhere:
    """A sink that keeps nothing; `alive` counts beats."""

    def __init__(self) -> None:
        self.beats = 0

    def alive(self, node: str, now: float) -> None:
        self.beats += 1

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class OverGrpcAio(CellTelemetryServicer):
    """The least that a grpc.aio service does with a stream."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._clock = SystemClock()

    async def Stream(  # type: ignore[override]  # noqa: N802 (gRPC names it so)
        self, request_iterator: AsyncIterator[pb.AgentMessage], context: Any
    ) -> None:
        first = await context.read()
        session = self._intake.open(first.hello, True)
        assert isinstance(session, Session)
        await context.write(self._intake.greet(session, first.hello, self._clock.now()))
        while (message := await context.read()) is not grpc.aio.EOF:
            self._intake.take(session, message, self._clock.now())


def serve(kind: str, port: int, pipe: Connection) -> None:
    """Serve, and when told measure for a while."""
    os.sched_setaffinity(0, {0})
    log.configure("error", "json")
    asyncio.run(_serve(kind, port, pipe))


async def _serve(kind: str, port: int, pipe: Connection) -> None:
    sink = Nowhere()
    intake = Intake(sink, pb.Welcome)
    if kind == "wire":
        wire = WireServer(TelemetryService(intake, SystemClock()).methods(), SystemClock())
        await wire.start(HostPort("127.0.0.1", port))
    else:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        add_CellTelemetryServicer_to_server(OverGrpcAio(intake), server)
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
    pipe.send("serving")
    await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
    beats, cpu = sink.beats, time.process_time()
    await asyncio.sleep(MEASURED_S)
    pipe.send((sink.beats - beats, time.process_time() - cpu))
    await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
    os._exit(0)


class Generator:
    """Streams that are open, and their beats."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: list[RawStream] = []
        self._beat = pb.AgentMessage(liveness=pb.Liveness())

    async def open(self) -> None:
        """Open all streams, one after another."""
        loop = asyncio.get_running_loop()
        for number in range(STREAMS):
            welcomed: asyncio.Future[bytes] = loop.create_future()
            stream = RawStream(_PATH, "controller", lambda each, w=welcomed: _done(w, each), _broken)  # type: ignore[misc]
            await loop.create_connection(lambda stream=stream: stream, "127.0.0.1", self._port)  # type: ignore[misc]
            hello = pb.Hello(node=f"n{number}", site="s", incarnation=1)
            stream.send(pb.AgentMessage(hello=hello).SerializeToString())
            await welcomed
            self._streams.append(stream)

    async def play(self, seconds: float) -> None:
        """Send beats, each stream in its turn; what is late goes at once."""
        start, sent = time.monotonic(), self._beat.liveness.seq
        first = sent
        while (now := time.monotonic()) < start + seconds:
            while sent - first < (now - start) * BEATS_PER_S:
                sent += 1
                self._beat.liveness.seq = sent
                self._streams[sent % STREAMS].send(self._beat.SerializeToString())
            await asyncio.sleep(0.001)

    def close(self) -> None:
        """End all streams."""
        for stream in self._streams:
            stream.close()


def _done(future: asyncio.Future[bytes], message: bytes) -> None:
    if not future.done():
        future.set_result(message)


def _broken(why: str) -> None:
    raise SystemExit(f"a stream broke: {why}")


async def _load(port: int, pipe: Connection) -> tuple[int, float]:
    generator = Generator(port)
    async with asyncio.timeout(CONNECT_WITHIN_S):
        await generator.open()
    await generator.play(WARM_UP_S)
    pipe.send("measure")
    await generator.play(MEASURED_S + 0.5)
    found: tuple[int, float] = await asyncio.to_thread(pipe.recv)
    generator.close()
    pipe.send("end")
    return found


def cpu_us(kind: str) -> float:
    """The CPU time of one server for one beat, µs."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    (port,) = free_ports(1)
    server = context.Process(target=serve, args=(kind, port, theirs), name=kind)
    server.start()
    try:
        if not ours.poll(60.0):
            raise SystemExit(f"the {kind} server does not start")
        ours.recv()
        beats, cpu = asyncio.run(_load(port, ours))
    finally:
        server.join(5.0)
        server.kill()
    if beats < BEATS_PER_S * MEASURED_S * 0.9:
        raise SystemExit(f"{kind}: {beats} beats were taken, too few; run it on two quiet cores")
    return cpu / beats * 1e6


def main() -> None:
    """Both servers in turns, three times."""
    path = json_path(__doc__ or "")
    os.sched_setaffinity(0, {1 % (os.cpu_count() or 1)})
    found: dict[str, list[float]] = {"grpc_aio": [], "wire": []}
    for _ in range(REPEATS):
        for kind, costs in found.items():
            costs.append(cpu_us(kind))
    figures = {f"cpu_us.{kind}": statistics.median(costs) for kind, costs in found.items()}
    figures["ratio"] = figures["cpu_us.grpc_aio"] / figures["cpu_us.wire"]
    report("ingest_wire", 0, figures, path)


if __name__ == "__main__":
    main()
