"""Ingest at full size: 10,000 cells on 1,250 streams, the whole controller on one core.

A process of its own on another core plays the agents: each of its streams sends two telemetry beats of
eight cells and ten liveness beats a second, each at its own moment. How late a beat is taken in is
measured from the moment it was due, so that the generator's own lateness counts, too; it is shown beside.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

import grpc
import numpy as np

from benchmarks.ingest_tick import tick_ms
from benchmarks.result import json_path, report
from headrace_controller import service
from headrace_controller.control.loop import ControlLoop
from headrace_controller.settings import ControllerSettings
from headrace_lab.stack.ports import free_ports
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config, log
from headrace_shared.tasks import run_program

SEED: Final = 1
STREAMS: Final = 1250
CELLS_A_STREAM: Final = 8
WARM_UP_S: Final = 10.0
MEASURED_S: Final = 20.0
# Half a second of one stream: when each beat is due, and whether it is telemetry.
CYCLE_S: Final = 0.5
CYCLE: Final = ((0.0, True), (0.03, False), (0.13, False), (0.23, False), (0.33, False), (0.43, False))
CONNECT_AT_ONCE: Final = 50
_OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


def due(number: int) -> float:
    """When the beat `number` of a stream is due after the stream's own start, s."""
    cycle, place = divmod(number, len(CYCLE))
    return cycle * CYCLE_S + CYCLE[place][0]


def offset(stream: int) -> float:
    """When a stream begins: they are spread over one cycle."""
    return CYCLE_S * stream / STREAMS


# The controller, in its own process.


@dataclass(slots=True)
class Ledger:
    """When each stream's beats were taken in; `start` is the common start on the monotonic clock."""

    start: float = 0.0
    taken: dict[str, int] | None = None
    late: list[float] | None = None

    def note(self, node: str, now: float) -> None:
        """One beat of `node` was taken in."""
        if self.taken is None or self.late is None:
            return
        number = self.taken.get(node, 0)
        self.taken[node] = number + 1
        begun = self.start + offset(int(node[1:]))
        if now - self.start >= WARM_UP_S:
            self.late.append(now - (begun + due(number)))


def serve(ports: tuple[int, int, int], pipe: Connection) -> None:
    """Run the real controller; when told the start, measure until told to end."""
    os.sched_setaffinity(0, {0})
    telemetry, xds, admin = ports
    settings = config.parse(
        f"gateways: [{{id: gw, host: 127.0.0.1}}]\n"
        f"listen: {{telemetry: 127.0.0.1:{telemetry}, xds: 127.0.0.1:{xds}, admin: 127.0.0.1:{admin}}}\n",
        ControllerSettings,
    )
    log.configure("error", "json")
    ledger = Ledger()
    alive = ControlLoop.alive

    def noting(self: ControlLoop, node: str, now: float) -> None:
        alive(self, node, now)
        ledger.note(node, time.monotonic())

    ControlLoop.alive = noting  # type: ignore[method-assign]

    async def main(stop: asyncio.Event) -> None:
        running = asyncio.create_task(service.run(settings, stop), name="controller")
        loop = asyncio.get_running_loop()
        ledger.taken, ledger.late, ledger.start = {}, [], await loop.run_in_executor(None, pipe.recv)
        await asyncio.sleep(max(0.0, ledger.start + WARM_UP_S - time.monotonic()))
        begun, before = time.monotonic(), os.times()
        await asyncio.sleep(MEASURED_S)
        after, wall = os.times(), time.monotonic() - begun
        late, ledger.late = ledger.late, None
        used = after.user + after.system - before.user - before.system
        pipe.send((late, used / wall))
        await loop.run_in_executor(None, pipe.recv)
        stop.set()
        await running

    run_program(main)


# The agents, in theirs.


def play(port: int, pipe: Connection) -> None:
    """Play all agents until the measured time is over; tell the own lateness of each beat."""
    os.sched_setaffinity(0, {1 % (os.cpu_count() or 1)})
    asyncio.run(_play(port, pipe))


async def _play(port: int, pipe: Connection) -> None:
    gate = asyncio.Semaphore(CONNECT_AT_ONCE)
    connected: asyncio.Queue[int] = asyncio.Queue()
    start: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    own: list[float] = []
    async with asyncio.TaskGroup() as group:
        for stream in range(STREAMS):
            group.create_task(_agent(port, stream, gate, connected, start, own), name=f"agent {stream}")
        for _ in range(STREAMS):
            await connected.get()
        pipe.send("connected")
        start.set_result(await asyncio.to_thread(pipe.recv))
    pipe.send(own)


async def _agent(
    port: int,
    stream: int,
    gate: asyncio.Semaphore,
    connected: asyncio.Queue[int],
    start: asyncio.Future[float],
    own: list[float],
) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_OPTIONS) as channel:
        open_stream = channel.stream_stream(
            "/headrace.v1.CellTelemetry/Stream", request_serializer=_as_it_is, response_deserializer=_as_it_is
        )
        async with gate:
            call = open_stream(wait_for_ready=True)
            await call.write(_hello(stream).SerializeToString())
            await call.read()
        connected.put_nowait(stream)
        begun = await start + offset(stream)
        for number, beat in enumerate(_beats(stream)):
            at = begun + due(number)
            if max(at, time.monotonic()) - begun > WARM_UP_S + MEASURED_S:
                break
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            if at - begun > WARM_UP_S:
                own.append(time.monotonic() - at)
            await call.write(beat)
        call.cancel()


def _as_it_is(data: bytes) -> bytes:
    return data


def _cells(stream: int) -> list[str]:
    return [f"c{stream}-{number}" for number in range(CELLS_A_STREAM)]


def _hello(stream: int) -> pb.AgentMessage:
    facts = [
        pb.CellFacts(
            cell_id=cell,
            address=pb.Address(host=f"10.{stream >> 8}.{stream & 255}.1", port=8000 + number),
            engine_kind="vllm",
            models=[pb.ModelFacts(id="m", max_model_len=8192)],
        )
        for number, cell in enumerate(_cells(stream))
    ]
    return pb.AgentMessage(hello=pb.Hello(node=f"n{stream}", site="s", incarnation=1, cells=facts))


def _beats(stream: int) -> Iterator[bytes]:
    """The beats of one stream, without end; the figures of every telemetry beat differ."""
    rng = random.Random(SEED * STREAMS + stream)
    telemetry = pb.AgentMessage(telemetry=_telemetry(stream, rng))
    liveness = pb.AgentMessage(liveness=pb.Liveness())
    number = 0
    while True:
        for _, full in CYCLE:
            number += 1
            if full:
                telemetry.telemetry.seq = number
                for cell in telemetry.telemetry.cells:
                    cell.signals.queue_depth = rng.uniform(0, 8)
                    cell.signals.kv_fill = rng.uniform(0.2, 0.8)
                    cell.requests.ok += 3
                yield telemetry.SerializeToString()
            else:
                liveness.liveness.seq = number
                yield liveness.SerializeToString()


def _telemetry(stream: int, rng: random.Random) -> pb.Telemetry:
    """A beat with everything that a busy, healthy cell tells."""
    beats = [
        pb.CellBeat(
            cell_id=cell,
            engine_state=pb.ENGINE_STATE_SERVING,
            serving_ms=600_000,
            in_flight=4,
            signals=pb.Signals(
                queue_depth=1, ttft_p95_s=rng.uniform(0.2, 0.6), error_rate=0, kv_fill=0.5,
                gpu_util=0.9, vram_util=0.8, compute_active=0.5, memory_bw_util=0.4,
            ),
            sources=[
                pb.SourceBeat(name="engine", status=pb.SOURCE_STATUS_OK, age_ms=80),
                pb.SourceBeat(name="dcgm", status=pb.SOURCE_STATUS_OK, age_ms=120),
            ],
            requests=pb.RequestTotals(ok=1000, client_errors=0, server_errors=0),
            hardware=pb.HardwareHealth(
                temperature_c=60, power_w=400, power_limit_w=700, pcie_replays=0, remapped_rows=0
            ),
            hardware_source=pb.HARDWARE_SOURCE_DCGM,
        )
        for cell in _cells(stream)
    ]  # fmt: skip
    path = pb.PathBeat(
        gateway="gw", rtt_ms=1.5, jitter_ms=0.1, loss=0, method=pb.PATH_METHOD_ICMP, age_ms=200
    )
    return pb.Telemetry(cells=beats, paths=[path])


def run() -> dict[str, float]:
    """One whole run; the figures by name."""
    context = multiprocessing.get_context("spawn")
    telemetry, xds, admin = free_ports(3)
    ports = (telemetry, xds, admin)
    controller, controller_end = context.Pipe()
    agents, agents_end = context.Pipe()
    programs: list[Any] = [
        context.Process(target=serve, args=(ports, controller_end), name="controller"),
        context.Process(target=play, args=(ports[0], agents_end), name="agents"),
    ]
    try:
        for program in programs:
            program.start()
        _expect(agents, 120.0)
        start = time.monotonic() + 2.0
        controller.send(start)
        agents.send(start)
        late, cpu_share = _expect(controller, WARM_UP_S + MEASURED_S + 60.0)
        own = _expect(agents, 60.0)
        controller.send("end")
        for program in programs:
            program.join(10.0)
    finally:
        for program in programs:
            program.kill()
    if not late or not own:
        raise SystemExit("the agents or the controller fell too far behind; run it on two quiet cores")
    return {
        "beats_per_s": len(late) / MEASURED_S,
        "late_ms_p50": float(np.percentile(late, 50)) * 1000,
        "late_ms_p99": float(np.percentile(late, 99)) * 1000,
        "late_ms_max": max(late) * 1000,
        "generator_late_ms_p99": float(np.percentile(own, 99)) * 1000,
        "cpu_share": cpu_share,
    }


def _expect(pipe: Connection, seconds: float) -> Any:
    if not pipe.poll(seconds):
        raise SystemExit(f"a part of the benchmark said nothing for {seconds:g} s")
    return pipe.recv()


def main() -> None:
    """Run the streams, then the tick alone."""
    path = json_path(__doc__ or "")
    report("ingest", SEED, run() | {"tick_ms.10000": tick_ms()}, path)


if __name__ == "__main__":
    main()
