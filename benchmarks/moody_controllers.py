"""Controllers that take beats, and give an agent no rest."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Final, Self

import grpc

from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import CellTelemetryServicer, add_CellTelemetryServicer_to_server

# (telemetry, liveness) in ms: the last hears mostly signs of life.
CADENCES: Final = ((5, 20), (5, 20), (100, 5))
MOOD_S: Final = (1.0, 4.0)
AWAY_S: Final = (0.1, 2.0)


class Controller(CellTelemetryServicer):
    """One controller; `moods` change what it does with its agent."""

    def __init__(
        self, port: int, cadence: tuple[int, int], gateways: Sequence[pb.Gateway], rng: random.Random
    ) -> None:
        self._port = port
        self._cadence = cadence
        self._gateways = gateways
        self._rng = rng
        self._acks = True
        self._refuses = False
        self._hellos = self._last_event = 0
        self._cells: list[str] = []
        self._to_say: deque[pb.ControllerMessage] = deque(maxlen=64)
        self._server: grpc.aio.Server | None = None
        self.counts: Counter[str] = Counter()

    async def Stream(  # noqa: N802 - the service's name for it
        self, request_iterator: AsyncIterator[pb.AgentMessage], context: Any
    ) -> AsyncIterator[pb.ControllerMessage]:
        if self._refuses:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")
        self._to_say.clear()
        async for message in request_iterator:
            body = message.WhichOneof("body") or ""
            self.counts[body] += 1
            if body == "hello":
                self._cells = [cell.cell_id for cell in message.hello.cells]
                yield self._welcome()
            elif body == "event":
                self._last_event = message.event.event_id
                self._ack()
            while self._to_say:
                yield self._to_say.popleft()

    async def start(self) -> None:
        """Listen on its port."""
        self._server = grpc.aio.server()
        add_CellTelemetryServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        await self._server.start()

    async def stop(self) -> None:
        """End every stream at once."""
        if self._server is not None:
            await self._server.stop(None)

    async def live(self) -> None:
        """Change moods for ever."""
        while True:
            await asyncio.sleep(self._rng.uniform(*MOOD_S))
            mood = self._rng.choice((self._restart, self._withhold, self._refuse, self._drain, self._regroup))
            self.counts[mood.__name__.strip("_")] += 1
            await mood()

    async def _restart(self) -> None:
        await self.stop()
        await asyncio.sleep(self._rng.uniform(*AWAY_S))
        await self.start()

    async def _withhold(self) -> None:
        self._acks = False
        await asyncio.sleep(self._rng.uniform(*MOOD_S))
        self._acks = True
        self._ack()

    async def _refuse(self) -> None:
        self._refuses = True
        await self._restart()
        await asyncio.sleep(self._rng.uniform(*AWAY_S))
        self._refuses = False

    async def _drain(self) -> None:
        for cell in self._cells:
            drain = pb.Drain(cell_id=cell, cause="bench", deadline_ms=self._rng.randrange(100, 1000))
            self._to_say.append(pb.ControllerMessage(directive=pb.Directive(drain=drain)))
        await asyncio.sleep(0.5)
        for cell in self._cells:
            undrain = pb.Directive(undrain=pb.Undrain(cell_id=cell))
            self._to_say.append(pb.ControllerMessage(directive=undrain))

    async def _regroup(self) -> None:
        self._to_say.append(self._welcome())

    def _welcome(self) -> pb.ControllerMessage:
        self._hellos += 1
        some = self._rng.sample(list(self._gateways), self._rng.randint(1, len(self._gateways)))
        refused = [pb.RefusedCell(cell_id=cell, reason="held elsewhere") for cell in self._cells[:1]]
        return pb.ControllerMessage(
            welcome=pb.Welcome(
                session=f"s{self._hellos}",
                telemetry_interval_ms=self._cadence[0],
                liveness_interval_ms=self._cadence[1],
                gateways=some,
                refused=refused if self._rng.random() < 0.1 else [],
            )
        )

    def _ack(self) -> None:
        if self._acks:
            self._to_say.append(pb.ControllerMessage(ack=pb.Ack(event_id=self._last_event)))


class Controllers:
    """All of them, for the length of a context."""

    def __init__(self, ports: Sequence[int], gateways: Sequence[pb.Gateway], rng: random.Random) -> None:
        self.ports = list(ports)
        self._all = [
            Controller(port, CADENCES[number % len(CADENCES)], gateways, random.Random(rng.random()))
            for number, port in enumerate(ports)
        ]
        self._lives: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for each in self._all:
            await each.start()
        self._lives = [asyncio.create_task(each.live(), name="controller") for each in self._all]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)
        for each in self._all:
            await each.stop()

    @property
    def telemetry(self) -> int:
        """Telemetry beats that came."""
        return sum(each.counts["telemetry"] for each in self._all)

    @property
    def counts(self) -> dict[str, float]:
        """What came and what was done, over all."""
        total: Counter[str] = Counter()
        for each in self._all:
            total += each.counts
        return {f"count_{name}": float(count) for name, count in sorted(total.items())}
