"""The agents of the ingest benchmark: every stream's beats, each at its own moment, from one clock."""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
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
# One step of the sequence numbers: they tell when a beat was due, and rise as they must.
SEQ_S: Final = 0.0001
# The beats that are sent until all streams are open: enough to be heard.
_WHILE_CONNECTING: Final = (3,)
CONNECT_AT_ONCE: Final = 50
CONNECTED_WITHIN_S: Final = 240.0
# The shortest sleep: beats of one millisecond are sent in one go.
_NAP_S: Final = 0.001
# A generator that is late must read all the same, or it never hears that it is over.
_READ_EVERY: Final = 200
_PATH: Final = "/headrace.v1.CellTelemetry/Stream"


@dataclass(frozen=True, slots=True)
class Played:
    """What the agents say of themselves: each beat's own lateness, s; their CPU time a second."""

    late: list[float]
    cpu_share: float


def due(seq: int) -> float:
    """When the beat with the sequence number `seq` was due after the agents' start, s."""
    return (seq - 1) * SEQ_S


def schedule() -> Iterator[tuple[int, int, int]]:
    """What is due when: sequence number (which tells the time), stream, place in CYCLE. In rising order,
    without end; the streams are spread evenly over one cycle."""
    cycle = round(CYCLE_S / SEQ_S)
    wheel = sorted(
        ((round(place / SEQ_S) + cycle * stream // STREAMS) % cycle, stream, number)
        for stream in range(STREAMS)
        for number, (place, _) in enumerate(CYCLE)
    )
    for lap in itertools.count():
        for at, stream, place in wheel:
            yield 1 + lap * cycle + at, stream, place


def play(port: int, pipe: Connection) -> None:
    """Play all agents until the measured time is over; tell what became of the beats."""
    os.sched_setaffinity(0, {1 % (os.cpu_count() or 1)})
    asyncio.run(_play(port, pipe))


async def _play(port: int, pipe: Connection) -> None:
    agents = Agents(port)
    async with asyncio.timeout(CONNECTED_WITHIN_S + WARM_UP_S + MEASURED_S):
        sending = asyncio.create_task(agents.send_all(), name="send")
        async with asyncio.timeout(CONNECTED_WITHIN_S):
            await asyncio.gather(*(agents.open(each) for each in range(STREAMS)))
        pipe.send(agents.start)
        gc.collect()
        gc.freeze()
        agents.measured_from = await asyncio.to_thread(pipe.recv)
        await sending
    pipe.send(Played(agents.late, agents.cpu_share))


class Agents:
    """All streams. A stream sends from its Welcome on, as an agent does: silence would have the
    controller ask engines that are not there."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._gate = asyncio.Semaphore(CONNECT_AT_ONCE)
        self._streams: dict[int, RawStream] = {}
        self._beats = [Beats(stream) for stream in range(STREAMS)]
        self._broken = ""
        self.start = time.monotonic()
        self.measured_from = math.inf
        self.late: list[float] = []
        self.cpu_share = 0.0

    async def open(self, number: int) -> None:
        """Open one stream, and wait for the Welcome to its Hello."""
        welcomed: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def answered(message: bytes) -> None:
            if not welcomed.done():
                welcomed.set_result(message)

        def ended(why: str) -> None:
            self._broken = f"stream {number}: {why}"
            if not welcomed.done():
                welcomed.set_exception(ConnectionError(self._broken))

        async with self._gate:
            stream = RawStream(_PATH, f"127.0.0.1:{self._port}", answered, ended)
            await _connect(stream, self._port)
            stream.send(_hello(number).SerializeToString())
            answer = pb.ControllerMessage.FromString(await welcomed)
        if not answer.HasField("welcome") or answer.welcome.refused:
            raise SystemExit(f"stream {number} was not welcomed: {answer}")
        self._streams[number] = stream

    async def send_all(self) -> None:
        """Send what is due until the measured time is over."""
        cpu, unread = 0.0, 0
        for seq, number, place in schedule():
            at = self.start + due(seq)
            wait = at - time.monotonic()
            unread += 1
            if wait > 0 or unread >= _READ_EVERY:
                unread = 0
                await asyncio.sleep(max(wait, _NAP_S) if wait > 0 else 0.0)
                wait = at - time.monotonic()
            if self._broken:
                raise SystemExit(self._broken)
            if at - wait > self.measured_from + MEASURED_S:
                break
            if at >= self.measured_from:
                cpu = cpu or time.process_time()
                self.late.append(max(0.0, -wait))
            stream = self._streams.get(number)
            if stream is not None and (place in _WHILE_CONNECTING or len(self._streams) == STREAMS):
                stream.send(self._beats[number].next(seq, CYCLE[place][1]))
        self.cpu_share = (time.process_time() - cpu) / MEASURED_S
        for stream in self._streams.values():
            stream.close()


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


class Beats:
    """The beats of one stream; the figures of every telemetry beat differ."""

    def __init__(self, stream: int) -> None:
        self._rng = random.Random(SEED * STREAMS + stream)
        self._telemetry = pb.AgentMessage(telemetry=_telemetry(stream, self._rng))
        self._liveness = pb.AgentMessage(liveness=pb.Liveness())

    def next(self, seq: int, full: bool) -> bytes:
        """The next beat, as it is sent."""
        if not full:
            self._liveness.liveness.seq = seq
            return self._liveness.SerializeToString()
        self._telemetry.telemetry.seq = seq
        for cell in self._telemetry.telemetry.cells:
            cell.signals.queue_depth = self._rng.uniform(0, 8)
            cell.signals.kv_fill = self._rng.uniform(0.2, 0.8)
            cell.requests.ok += 3
        return self._telemetry.SerializeToString()


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
