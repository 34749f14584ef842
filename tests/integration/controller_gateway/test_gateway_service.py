"""The services that Envoys report to, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc
from envoy.service.load_stats.v3 import lrs_pb2_grpc

from headrace_controller.gateway import service as module
from headrace_controller.gateway.identity import Doorkeeper
from headrace_controller.gateway.loads import Load
from headrace_controller.gateway.records import REQUESTS_LOG, TRIES_LOG, Record
from headrace_controller.gateway.service import ACCESS_LOG, LOADS, GatewayService
from headrace_controller.settings import GatewayReportsSettings
from headrace_shared.clock import SystemClock
from headrace_shared.tls import TlsSettings
from tests.integration.controller_xds.client import until
from tests.support.certificates import server_and_client
from tests.support.gateway_port import GatewayPort
from tests.unit.controller.gateway.entries import entry, load_report

NODES = {"gw-1": "gw-1", "envoy-7": "gw-1", "gw-2": "gw-2"}


class Kept:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.requested: list[tuple[str, Record, int, bool]] = []
        self.tried: list[tuple[str, Record]] = []
        self.shares: list[float] = []
        self.loaded: list[tuple[str, int, list[Load]]] = []
        self.open: dict[tuple[str, str], int] = {}
        self.ended: list[int] = []
        self.dropped = 0

    def requests(self, gateway: str, records: Sequence[Record], each: int, alone: bool) -> None:
        self.requested += [(gateway, record, each, alone) for record in records]

    def tries(self, gateway: str, records: Sequence[Record], share: float) -> None:
        self.shares.append(share)
        self.tried += [(gateway, record) for record in records]

    def loads(self, gateway: str, source: int, loads: Sequence[Load]) -> None:
        self.loaded.append((gateway, source, list(loads)))

    def left_out(self, gateway: str, count: int) -> None:
        self.dropped += count

    def streams(self, gateway: str, kind: str, count: int) -> None:
        self.open[gateway, kind] = count

    def source_ended(self, gateway: str, source: int) -> None:
        self.ended.append(source)


class Served:
    """The service on a port, what it told, and why it refused."""

    def __init__(self, settings: GatewayReportsSettings, tls: TlsSettings | None) -> None:
        self.kept, self.refused = Kept(), list[str]()
        door = Doorkeeper(NODES.get, self.refused.append, check_identity=tls is not None)
        self.server = GatewayPort(tls)
        GatewayService(settings, SystemClock(), door, self.kept).add_to(self.server)
        self.port = 0


@asynccontextmanager
async def served(tls: TlsSettings | None = None, **settings: Any) -> AsyncIterator[Served]:
    made = Served(GatewayReportsSettings(**settings), tls)
    made.port = await made.server.start()
    try:
        yield made
    finally:
        await made.server.stop()


@asynccontextmanager
async def log_of(port: int, credentials: grpc.ChannelCredentials | None = None) -> AsyncIterator[Any]:
    """An access-log stream."""
    target = f"127.0.0.1:{port}"
    channel = (
        grpc.aio.secure_channel(target, credentials) if credentials else grpc.aio.insecure_channel(target)
    )
    async with channel:
        call = als_pb2_grpc.AccessLogServiceStub(channel).StreamAccessLogs()
        try:
            yield call
        finally:
            call.cancel()


def message(*entries: Any, node: str = "gw-1", log: str = REQUESTS_LOG) -> Any:
    made = als_pb2.StreamAccessLogsMessage()
    if node:
        made.identifier.node.id = node
        made.identifier.log_name = log
    made.http_logs.log_entry.extend(entries)
    return made


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    async with asyncio.timeout(30):
        return await call.code(), await call.details()


async def test_only_the_first_message_says_who_speaks() -> None:
    async with served() as made, log_of(made.port) as call:
        await call.write(message(entry(status=400), node="envoy-7"))
        await call.write(message(entry(status=200), node=""))
        await until(lambda: len(made.kept.requested) == 2)
        assert {(gateway, each, alone) for gateway, _, each, alone in made.kept.requested} == {
            ("gw-1", 1, False)
        }
        assert [record.status for _, record, _, _ in made.kept.requested] == [400, 200]
        assert made.kept.open == {("gw-1", ACCESS_LOG): 1}
        await call.done_writing()
        assert (await status_of(call))[0] is grpc.StatusCode.OK
        assert made.kept.open == {("gw-1", ACCESS_LOG): 0}


async def test_an_envoy_that_vanishes_is_noted() -> None:
    async with served() as made:
        async with log_of(made.port) as call:
            await call.write(message(entry()))
            await until(lambda: made.kept.open == {("gw-1", ACCESS_LOG): 1})
        await until(lambda: made.kept.open == {("gw-1", ACCESS_LOG): 0})


async def test_tries_are_told_apart_and_other_logs_stand_alone() -> None:
    async with served() as made:
        async with log_of(made.port) as call:
            await call.write(message(entry(status=0), log=TRIES_LOG))
            await until(lambda: len(made.kept.tried) == 1)
        assert made.kept.shares == [1.0]
        async with log_of(made.port) as call:
            await call.write(message(entry(), log="my-own"))
            await until(lambda: len(made.kept.requested) == 1)
        assert made.kept.requested[0][3] is True


async def test_a_stranger_is_refused_and_told_why() -> None:
    async with served() as made:
        for _ in range(3):
            async with log_of(made.port) as call:
                await call.write(message(entry(), node="somebody"))
                code, details = await status_of(call)
                assert code is grpc.StatusCode.PERMISSION_DENIED
                assert "no gateway has the id 'somebody'" in details
        assert made.refused == ["unknown_gateway"] * 3
        assert not made.kept.requested


async def test_a_stream_that_says_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_TIMEOUT_S", 0.1)
    async with served() as made, log_of(made.port) as call:
        await call.wait_for_connection()
        assert (await status_of(call))[0] is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_there_is_a_bound_on_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STREAMS", 1)
    async with served() as made, log_of(made.port) as first, log_of(made.port) as second:
        await first.write(message(entry()))
        await until(lambda: made.kept.open == {("gw-1", ACCESS_LOG): 1})
        await second.write(message(entry()))
        assert (await status_of(second))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        await first.write(message(entry()))
        await until(lambda: len(made.kept.requested) == 2)


async def test_a_rush_is_sampled_and_each_record_stands_for_its_share() -> None:
    async with served(max_records_per_s=10) as made, log_of(made.port) as call:
        await call.write(message(*[entry()] * 1000))
        await until(lambda: bool(made.kept.dropped))
        weighed = sum(each for _, _, each, _ in made.kept.requested)
        assert len(made.kept.requested) == 10
        assert weighed == 1000 == len(made.kept.requested) + made.kept.dropped
        async with log_of(made.port) as tries:
            await tries.write(message(entry(status=0), log=TRIES_LOG))
            await until(lambda: len(made.kept.shares) == 1)
        assert made.kept.shares[0] < 0.5, "all tries come, beside a sample of the requests"


async def test_load_reports_are_asked_for_by_endpoint_and_read() -> None:
    async with served(load_interval_s=0.5) as made:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{made.port}") as channel:
            call = lrs_pb2_grpc.LoadReportingServiceStub(channel).StreamLoadStats()
            await call.write(load_report())
            wanted = await call.read()
            assert wanted.send_all_clusters
            assert wanted.report_endpoint_granularity
            assert wanted.load_reporting_interval.ToMilliseconds() == 500
            await call.write(load_report(("10.0.0.1:8000", 3, 1), node=""))
            await until(lambda: len(made.kept.loaded) == 2)
            assert made.kept.loaded[1] == ("gw-1", 1, [Load("10.0.0.1:8000", 3, 1)])
            assert made.kept.open == {("gw-1", LOADS): 1}
            call.cancel()
        await until(lambda: made.kept.ended == [1])
        assert made.kept.open == {("gw-1", LOADS): 0}


@pytest.mark.parametrize(("name", "taken"), [("gw-1", True), ("envoy-7", True), ("gw-2", False)])
async def test_an_envoy_reports_only_for_the_gateway_that_its_certificate_names(
    tmp_path: Path, name: str, taken: bool
) -> None:
    tls, shown = server_and_client(tmp_path, name)
    async with served(tls) as made, log_of(made.port, shown) as call:
        await call.write(message(entry()))
        if taken:
            await until(lambda: len(made.kept.requested) == 1)
        else:
            code, details = await status_of(call)
            assert code is grpc.StatusCode.PERMISSION_DENIED
            assert "does not name gateway 'gw-1'" in details
            assert made.refused == ["wrong_identity"]
            assert not made.kept.requested
