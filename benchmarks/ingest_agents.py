"""The agents of the ingest benchmark: every stream's beats, each at its own moment, from one clock."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

from benchmarks.raw_stream import RawStream
from headrace_pb.v1 import telemetry_pb2 as pb

SEED: Final = 1
STREAMS: Final = 1250
CELLS_A_STREAM: Final = 8
WARM_UP_S: Final = 10.0
MEASURED_S: Final = 20.0
# Half a second of one stream: when each beat is due, and whether it is telemetry.
CYCLE_S: Final = 0.5
CYCLE: Final = ((0.0, True), (0.03, False), (0.13, False), (0.23, False), (0.33, False), (0.43, False))
CONNECT_AT_ONCE: Final = 50
WELCOME_WITHIN_S: Final = 60.0
# The shortest sleep: beats of one millisecond are sent in one go.
_NAP_S: Final = 0.001
_PATH: Final = "/headrace.v1.CellTelemetry/Stream"


@dataclass(frozen=True, slots=True)
class Played:
    """What the agents say of themselves: each beat's own lateness, s; their CPU time a second."""

    late: list[float]
    cpu_share: float


def due(number: int) -> float:
    """When the beat `number` of a stream is due after the stream's own start, s."""
    cycle, place = divmod(number, len(CYCLE))
    return cycle * CYCLE_S + CYCLE[place][0]


def offset(stream: int) -> float:
    """When a stream begins: they are spread over one cycle."""
    return CYCLE_S * stream / STREAMS


def schedule() -> Iterator[tuple[float, int]]:
    """When which stream sends its next beat: s after the common start, in rising order, without end."""
    wheel = []
    for stream in range(STREAMS):
        for place, _ in CYCLE:
            laps, at = divmod(offset(stream) + place, CYCLE_S)
            wheel.append((at, int(laps), stream))
    wheel.sort()
    lap = 0
    while True:
        for at, first_lap, stream in wheel:
            if lap >= first_lap:
                yield lap * CYCLE_S + at, stream
        lap += 1


def play(port: int, pipe: Connection) -> None:
    """Play all agents until the measured time is over; tell what became of the beats."""
    os.sched_setaffinity(0, {1 % (os.cpu_count() or 1)})
    asyncio.run(_play(port, pipe))


async def _play(port: int, pipe: Connection) -> None:
    gate = asyncio.Semaphore(CONNECT_AT_ONCE)
    broken: list[str] = []
    async with asyncio.timeout(WELCOME_WITHIN_S):
        streams = await asyncio.gather(*(_open(port, each, gate, broken) for each in range(STREAMS)))
    beats = [_beats(stream) for stream in range(STREAMS)]
    pipe.send("connected")
    start: float = await asyncio.to_thread(pipe.recv)
    gc.collect()
    gc.freeze()
    pipe.send(await _send_all(streams, beats, start, broken))
    for each in streams:
        each.close()


async def _open(port: int, number: int, gate: asyncio.Semaphore, broken: list[str]) -> RawStream:
    """Open one stream, and wait for the Welcome to its Hello."""
    loop = asyncio.get_running_loop()
    welcomed: asyncio.Future[bytes] = loop.create_future()

    def answered(message: bytes) -> None:
        if not welcomed.done():
            welcomed.set_result(message)

    def ended(why: str) -> None:
        broken.append(f"stream {number}: {why}")
        if not welcomed.done():
            welcomed.set_exception(SystemExit(broken[-1]))

    async with gate:
        stream = RawStream(_PATH, f"127.0.0.1:{port}", answered, ended)
        await _connect(stream, port)
        stream.send(_hello(number).SerializeToString())
        answer = pb.ControllerMessage.FromString(await welcomed)
    if not answer.HasField("welcome") or answer.welcome.refused:
        raise SystemExit(f"stream {number} was not welcomed: {answer}")
    return stream


async def _connect(stream: RawStream, port: int) -> None:
    """Connect as soon as the controller listens; the caller bounds the time."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            await loop.create_connection(lambda: stream, "127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)
        else:
            return


async def _send_all(
    streams: list[RawStream], beats: list[Iterator[bytes]], start: float, broken: list[str]
) -> Played:
    late: list[float] = []
    cpu, end = 0.0, WARM_UP_S + MEASURED_S
    for after, stream in schedule():
        at = start + after
        wait = at - time.monotonic()
        if wait > 0:
            await asyncio.sleep(max(wait, _NAP_S))
            wait = at - time.monotonic()
        if broken:
            raise SystemExit(broken[0])
        if after - wait > end:
            break
        if after >= WARM_UP_S:
            cpu = cpu or time.process_time()
            late.append(max(0.0, -wait))
        streams[stream].send(next(beats[stream]))
    return Played(late, (time.process_time() - cpu) / MEASURED_S)


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
