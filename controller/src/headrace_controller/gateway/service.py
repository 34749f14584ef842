"""The gRPC services that Envoys report to: access logs and load reports."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import grpc
from envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc
from envoy.service.load_stats.v3 import lrs_pb2, lrs_pb2_grpc
from google.protobuf import duration_pb2

from headrace_controller.gateway.identity import Doorkeeper
from headrace_controller.gateway.loads import Load, read_loads
from headrace_controller.gateway.pace import Pace
from headrace_controller.gateway.records import REQUESTS_LOG, TRIES_LOG, Record, read_record
from headrace_controller.settings import GatewayReportsSettings
from headrace_shared import log
from headrace_shared.clock import Clock

SERVICES: Final[tuple[str, ...]] = (
    als_pb2.DESCRIPTOR.services_by_name["AccessLogService"].full_name,
    lrs_pb2.DESCRIPTOR.services_by_name["LoadReportingService"].full_name,
)
MAX_STREAMS: Final = 512
"""Of one gateway: each worker of each Envoy opens one for each log."""
SLICE: Final = 128
"""So many records are read without giving way: some milliseconds."""
FIRST_TIMEOUT_S: Final = 10.0
CLOSE_TIMEOUT_S: Final = 1.0
ACCESS_LOG, LOADS = "access_log", "load_report"


class Sink(Protocol):
    """Takes what gateways report; every call returns at once."""

    def requests(self, gateway: str, records: Sequence[Record], each: int, alone: bool) -> None:
        """Requests, each of which stands for `each` of them. `alone`: no log of tries goes with them."""
        ...

    def tries(self, gateway: str, records: Sequence[Record], share: float) -> None:
        """Tries that ended without a whole answer: all of them, where a `share` of the requests is told."""
        ...

    def loads(self, gateway: str, source: int, loads: Sequence[Load]) -> None:
        """The whole of one report of the Envoy `source`; endpoints that it leaves out are idle."""
        ...

    def left_out(self, gateway: str, count: int) -> None:
        """Records that sampling has left out."""
        ...

    def streams(self, gateway: str, kind: str, count: int) -> None:
        """How many streams of a kind a gateway has now."""
        ...

    def source_ended(self, gateway: str, source: int) -> None:
        """An Envoy's load reports have ended."""
        ...


class GatewayService:
    """Serves both; a slow controller makes Envoys drop records, never wait."""

    def __init__(self, settings: GatewayReportsSettings, clock: Clock, door: Doorkeeper, sink: Sink) -> None:
        self._settings = settings
        self._clock = clock
        self._door = door
        self._sink = sink
        self._pace = Pace(settings.max_records_per_s)
        self._open: Counter[tuple[str, str]] = Counter()
        self._sources = 0
        self._reading: set[asyncio.Future[Any]] = set()
        self._handlers = 0
        self._closing = asyncio.Event()
        self._idle = asyncio.Event()
        self._log = log.get("gateway")

    def add_to(self, server: Any) -> None:
        """Register the services with a server that does not run yet: wire.Handlers or a grpc.aio.Server."""
        als_pb2_grpc.add_AccessLogServiceServicer_to_server(self, server)
        lrs_pb2_grpc.add_LoadReportingServiceServicer_to_server(self, server)

    async def close(self) -> None:
        """End every stream; returns once they have ended, after a second at the latest."""
        self._closing.set()
        for reading in tuple(self._reading):
            reading.cancel()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while self._handlers:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            self._log.warning("reports did not end in time", streams=self._handlers)

    async def StreamAccessLogs(self, _requests: Any, context: Any) -> Any:  # noqa: N802
        """Read one worker's log (called by gRPC)."""
        with self._handling():
            message = await self._first(context)
            gateway = await self._door.admit(message.identifier.node.id, context)
            name = message.identifier.log_name
            await self._enter(gateway, ACCESS_LOG, context)
            try:
                while message is not grpc.aio.EOF:
                    await self._take(gateway, name, message.http_logs.log_entry)
                    message = await self._read(context)
            finally:
                self._leave(gateway, ACCESS_LOG)
        return als_pb2.StreamAccessLogsResponse()

    async def StreamLoadStats(self, _requests: Any, context: Any) -> None:  # noqa: N802
        """Read one Envoy's load reports (called by gRPC)."""
        with self._handling():
            message = await self._first(context)
            gateway = await self._door.admit(message.node.id, context)
            await self._enter(gateway, LOADS, context)
            self._sources += 1
            source = self._sources
            try:
                await context.write(self._wanted())
                while message is not grpc.aio.EOF:
                    self._sink.loads(gateway, source, list(read_loads(message)))
                    message = await self._read(context)
            finally:
                self._sink.source_ended(gateway, source)
                self._leave(gateway, LOADS)

    @contextmanager
    def _handling(self) -> Iterator[None]:
        self._handlers += 1
        try:
            yield
        finally:
            self._handlers -= 1
            self._idle.set()

    async def _read(self, context: Any) -> Any:
        """The next message; EOF once the service closes, because gRPC takes a handler that it has to
        cancel for a broken one."""
        if self._closing.is_set():
            return grpc.aio.EOF
        reading = asyncio.create_task(context.read(), name="read of a report")
        self._reading.add(reading)
        try:
            return await reading
        except asyncio.CancelledError:
            if self._closing.is_set() and reading.cancelled():
                return grpc.aio.EOF
            raise
        finally:
            self._reading.discard(reading)

    async def _first(self, context: Any) -> Any:
        """The first message, which says who speaks."""
        try:
            async with asyncio.timeout(FIRST_TIMEOUT_S):
                message = await self._read(context)
        except TimeoutError:
            words = f"no message within {FIRST_TIMEOUT_S:g} s"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, words)
        if message is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the stream ended before a message")
        return message

    def _wanted(self) -> lrs_pb2.LoadStatsResponse:
        interval = duration_pb2.Duration()
        interval.FromNanoseconds(round(self._settings.load_interval_s * 1e9))
        return lrs_pb2.LoadStatsResponse(
            send_all_clusters=True, load_reporting_interval=interval, report_endpoint_granularity=True
        )

    async def _take(self, gateway: str, name: str, entries: Sequence[Any]) -> None:
        if not entries:
            return
        if name == TRIES_LOG:
            # They are rare where all is well; where it is not, they are what counts.
            for start in range(0, len(entries), SLICE):
                tries = [read_record(entry) for entry in entries[start : start + SLICE]]
                self._sink.tries(gateway, tries, self._pace.share(self._clock.now()))
                await asyncio.sleep(0)
            return
        chosen = self._pace.choose(len(entries), self._clock.now())
        if left := len(entries) - len(chosen):
            self._sink.left_out(gateway, left)
        for start in range(0, len(chosen), SLICE):
            records = [read_record(entries[at]) for at in chosen[start : start + SLICE]]
            self._sink.requests(gateway, records, chosen.step, name != REQUESTS_LOG)
            # A message may hold thousands, and beats must be read meanwhile.
            await asyncio.sleep(0)

    async def _enter(self, gateway: str, kind: str, context: Any) -> None:
        if self._open[gateway, kind] >= MAX_STREAMS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} streams already report for {gateway}"
            )
        self._open[gateway, kind] += 1
        self._sink.streams(gateway, kind, self._open[gateway, kind])

    def _leave(self, gateway: str, kind: str) -> None:
        self._open[gateway, kind] -= 1
        self._sink.streams(gateway, kind, self._open[gateway, kind])
