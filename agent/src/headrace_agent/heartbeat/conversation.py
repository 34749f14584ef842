"""One gRPC stream from its Hello to its end: a writer that empties the outbox, and a reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import grpc

from headrace_agent.collectors.patience import Patience
from headrace_agent.heartbeat.alarm import Alarm
from headrace_agent.heartbeat.cadence import Cadence
from headrace_agent.heartbeat.outbox import Outbox
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.clock import Clock

CONNECT_TIMEOUT_S: Final = 2.0
WELCOME_TIMEOUT_S: Final = 5.0
# A controller that refuses the Hello says why, unless a write that follows breaks the call first.
# A slow one must hear signs of life all the same.
HOLD_S: Final = 0.25
# Flow control may hold a write back while the controller is busy; one that takes nothing for this
# long is gone, or as good as gone.
WRITE_TIMEOUT_S: Final = 10.0
_BEATS: Final = ("telemetry", "liveness")

Call = grpc.aio.StreamStreamCall[pb.AgentMessage, pb.ControllerMessage]


class NoAnswerError(Exception):
    """The controller left a step unanswered; the text says which, and for how long."""


class Conversation:
    """Runs one call. `wake` is set by whoever puts something urgent into the outbox."""

    def __init__(
        self,
        call: Call,
        outbox: Outbox,
        wake: Alarm,
        clock: Clock,
        on_message: Callable[[pb.ControllerMessage], None],
        on_beat: Callable[[], None],
    ) -> None:
        self._call = call
        self._outbox = outbox
        self._wake = wake
        self._clock = clock
        self._on_message = on_message
        self._on_beat = on_beat
        self._answered = asyncio.Event()
        self._patience = Patience()
        self.cadence = Cadence(clock.now())

    async def run(self, name: str) -> None:
        """Talk until the controller ends the stream.

        Raises NoAnswerError, or grpc.aio.AioRpcError with the controller's or the network's reason.
        """
        self._outbox.begin()
        writer = asyncio.create_task(self._write_all(), name=f"writer to {name}")
        reader = asyncio.create_task(self._read_all(), name=f"reader of {name}")
        try:
            await asyncio.wait({writer, reader}, return_when=asyncio.FIRST_COMPLETED)
            if writer.done() and not writer.cancelled() and writer.exception() is None:
                await asyncio.wait({reader})
        finally:
            for task in (writer, reader):
                task.cancel()
            ends = await asyncio.gather(reader, writer, return_exceptions=True)
        await self._raise_why(ends)

    async def _raise_why(self, ends: Sequence[BaseException | None]) -> None:
        """The time-out comes first, then the call's own status: a write to a dead call says little."""
        for end in ends:
            if isinstance(end, NoAnswerError):
                raise end
        for end in ends:
            if isinstance(end, grpc.aio.AioRpcError):
                raise end
        if self._call.done() and not self._call.cancelled():
            code = await self._call.code()
            if code is not grpc.StatusCode.OK:
                empty = grpc.aio.Metadata()
                raise grpc.aio.AioRpcError(code, empty, empty, details=await self._call.details())
        for end in ends:
            if end is not None and not isinstance(end, asyncio.CancelledError | asyncio.InvalidStateError):
                raise end

    async def _read_all(self) -> None:
        try:
            async with asyncio.timeout(WELCOME_TIMEOUT_S):
                message = await self._call.read()
        except TimeoutError as error:
            raise NoAnswerError(f"no Welcome within {WELCOME_TIMEOUT_S:g} s") from error
        while isinstance(message, pb.ControllerMessage):
            self._answered.set()
            self._on_message(message)
            message = await self._call.read()

    async def _write_all(self) -> None:
        """Send what is due until the Goodbye is out, then say that nothing more will come."""
        await self._open()
        while not self._outbox.closed:
            self._wake.clear()
            self._note_due()
            while (message := self._outbox.take(self._clock.now())) is not None:
                await self._write(message, WRITE_TIMEOUT_S)
                self._note_due()
            if not self._outbox.closed:
                await self._rest()
        await self._call.done_writing()

    async def _open(self) -> None:
        """Send the Hello, which also waits for the connection, and hear the answer if it comes soon."""
        hello = self._outbox.take(self._clock.now())
        if hello is None:
            return
        await self._write(hello, CONNECT_TIMEOUT_S)
        try:
            async with asyncio.timeout(HOLD_S):
                await self._answered.wait()
        except TimeoutError:
            return

    def _note_due(self) -> None:
        now = self._clock.now()
        if self.cadence.telemetry_due(now):
            self._outbox.want_telemetry()
        if self.cadence.liveness_due(now):
            self._outbox.want_liveness()

    async def _write(self, message: pb.AgentMessage, timeout_s: float) -> None:
        try:
            with self._patience.of(timeout_s):
                await self._call.write(message)
        except TimeoutError as error:
            raise NoAnswerError(f"nothing was taken within {timeout_s:g} s") from error
        self.cadence.sent(self._clock.now())
        if message.WhichOneof("body") in _BEATS:
            self._on_beat()

    async def _rest(self) -> None:
        """Until something urgent comes up or the next beat is due."""
        await self._wake.wait(self.cadence.wait_s(self._clock.now()))
