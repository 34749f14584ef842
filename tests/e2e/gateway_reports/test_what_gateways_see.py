"""What a real Envoy reports of each request, and what the controller makes of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace_controller.control.gateway_reports import REFUSALS_OF_THE_DEAD
from headrace_controller.lifecycle import Answer, CellState
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.e2e.gateway_reports.region import GATEWAY, Region, running_region
from tests.e2e.xds.cells import Cell, CuttingCell
from tests.e2e.xds.stack import until, until_async

OK, CLIENT, THROTTLED, SERVER = range(4)
ALIVE_S = 4.0
"""How long a gateway's word counts."""


def evidence(region: Region, cell: str) -> list[float]:
    fleet = region.loop.fleet
    return [round(each, 3) for each in fleet.gateway_evidence[fleet.row(cell)].tolist()]


async def test_each_status_is_counted_as_what_it_is(tmp_path: Path) -> None:
    a = Cell("a")
    async with running_region(tmp_path, a) as region:
        for status, times in ((200, 4), (400, 2), (429, 1), (500, 3)):
            a.status = status
            for _ in range(times):
                assert await region.ask() == status
        await region.ask(model="unknown")
        await region.counted_up("a", ok=4, client_errors=2, throttled=1, server_errors=3)
        await region.counted_up("", unrouted=1)
        # One client's refusals, which no other cell can tell apart, count at most twice. Tries are reported
        # apart from requests.
        await until(lambda: evidence(region, "a") == [5, 2, 0, 3])
        (report,) = region.loop.reports.cell("a").values()
        assert report.first_byte_p50_s is not None
        assert report.failed_tries == 0


async def test_what_was_made_again_elsewhere_counts_against_who_lost_it(tmp_path: Path) -> None:
    a, b = Cell("a"), CuttingCell("b")
    async with running_region(tmp_path, a, b) as region:
        for _ in range(8):
            assert await region.ask() == 200
        await region.counted_up("a", ok=8)
        await until(lambda: evidence(region, "b")[SERVER] >= 3)
        await until(lambda: evidence(region, "a") == [8, 0, 0, 0])
        assert region.counts("b") == {}


async def test_a_stream_that_is_cut_off_is_a_failure_of_its_cell(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 1000\r\n\r\ndata: 1\n\n"
    a = CuttingCell("a", begun=head)
    async with running_region(tmp_path, a) as region:
        assert await region.ask() == 0
        await region.counted_up("a", server_errors=1)
        await until(lambda: evidence(region, "a") == [0, 0, 0, 1])


async def test_a_client_that_leaves_speaks_against_nobody(tmp_path: Path) -> None:
    a = Cell("a")
    a.chunks, a.chunk_gap_s = 1000, 0.05
    async with running_region(tmp_path, a) as region:
        async with region.session.post(region.url, json={"model": "m", "prompt": "p"}) as response:
            assert response.status == 200
            await response.content.readany()
            response.close()
        await region.counted_up("a", cancelled=1)
        assert evidence(region, "a") == [0, 0, 0, 0]


async def test_a_client_that_leaves_before_the_answer_begins_speaks_against_nobody(tmp_path: Path) -> None:
    a = Cell("a")
    a.delay_s = 60.0
    async with running_region(tmp_path, a) as region:
        request = asyncio.create_task(region.ask())
        await until(lambda: a.requests == 1)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await region.counted_up("a", cancelled=1)
        await until(lambda: a.gone == 1)
        assert evidence(region, "a") == [0, 0, 0, 0]
        assert region.loop.reports.cell("a")[GATEWAY].failed_tries == 0


async def test_with_its_agent_dead_an_engine_that_is_killed_is_found_by_gateways(tmp_path: Path) -> None:
    """The controller cannot ask; what gateways meet is that nobody listens."""
    cells = [Cell(name) for name in "abc"]
    async with running_region(tmp_path, *cells, lifecycle=_patient()) as region:
        region.controller.inquiry.ask = lambda cell, question, timeout: None  # type: ignore[method-assign]
        for _ in range(9):
            assert await region.ask() == 200
        region.silent |= set("abc")
        await until(lambda: region.loop.self_preservation)
        await cells[2].stop()
        for _ in range(40):
            assert await region.ask() == 200
            await asyncio.sleep(0.02)
        await until(lambda: _refusals(region, "c") >= REFUSALS_OF_THE_DEAD)
        for name in "abc":
            region.loop.answered(name, Answer.NO_ANSWER, "cut off")
        states = {name: _state(region, name).name for name in "abc"}
        assert states == {"a": "READY", "b": "READY", "c": "FAILED"}
        cause = region.loop.book.life("c").history[-1].cause
        assert "dead" in cause


def _patient() -> dict[str, float]:
    """Silence that stays news for long: the test's own machine may be slow."""
    return {"ramp_s": 0, "barrier_s": 0.2, "self_preservation_window_s": 60}


async def test_a_streams_first_byte_is_not_taken_for_its_first_token(tmp_path: Path) -> None:
    a = Cell("a")
    a.chunks = 3
    async with running_region(tmp_path, a) as region:
        assert await region.ask() == 200
        await region.counted_up("a", ok=1)
        report = region.loop.reports.cell("a")[GATEWAY]
        assert report.first_byte_p50_s is None
        assert report.whole_p50_s is not None


async def test_loads_are_those_of_the_gateway(tmp_path: Path) -> None:
    a = Cell("a")
    async with running_region(tmp_path, a) as region:
        streams = region.controller.metrics.gateway_streams.labels(GATEWAY, "load_report")
        await until(lambda: streams._value.get() == 1)
        await asyncio.sleep(0.5)
        before = _issued(region)
        a.delay_s = 25.0
        asked = [asyncio.create_task(region.ask()) for _ in range(3)]
        await until(lambda: _in_progress(region) == 3)
        a.delay_s = 0.0
        assert await asyncio.gather(*asked) == [200, 200, 200]
        await until(lambda: _in_progress(region) == 0 and _issued(region) - before == 3)


def _issued(region: Region) -> int:
    report = region.loop.reports.cell("a").get(GATEWAY)
    return report.issued if report else 0


def _in_progress(region: Region) -> int:
    report = region.loop.reports.cell("a").get(GATEWAY)
    return report.in_progress if report else 0


async def test_a_cell_whose_engine_counts_no_refusals_loses_its_weight(tmp_path: Path) -> None:
    """vLLM 0.6.6 counts no refused request at all: its agent sees nothing wrong."""
    cells = [Cell(name) for name in "abc"]
    async with running_region(tmp_path, *cells) as region:
        for _ in range(30):
            assert await region.ask() == 200
        assert region.weights() == {"a": 100, "b": 100, "c": 100}
        cells[2].status = 400

        async def falls() -> bool:
            await region.ask()
            await asyncio.sleep(0.05)
            return region.weights()["c"] <= 2

        await until_async(falls)
        assert region.weights()["a"] == region.weights()["b"] == 100
        explained = region.loop.explain("c", GATEWAY)
        assert explained is not None
        assert explained.error.source == "gateways"


async def test_with_reports_off_agents_are_believed(tmp_path: Path) -> None:
    cells = [Cell(name) for name in "abc"]
    async with running_region(tmp_path, *cells, gateway_reports={"enabled": False}) as region:
        for _ in range(30):
            assert await region.ask() == 200
        assert region.loop.reports.cell("a") == {}
        region.counted |= {name: _totals(10, 0) for name in "abc"}
        await asyncio.sleep(0.3)
        region.counted |= {name: _totals(100, 0) for name in "ab"}
        region.counted["c"] = _totals(10, 90)
        await until(lambda: region.weights()["c"] <= 2, 30)
        assert await region.envoy.get("/stats?filter=grpc_access_log") == ""


async def test_with_the_log_down_requests_go_on_and_no_record_waits(tmp_path: Path) -> None:
    a = Cell("a")
    reports = {"flush_s": 0.1, "buffer_bytes": 4096}
    async with running_region(tmp_path, a, gateway_reports=reports) as region:
        assert await region.ask() == 200
        await region.counted_up("a", ok=1)
        await region.controller.xds.close()
        await region.server.stop(0)
        written = "access_logs.grpc_access_log.logs_written"
        dropped = "access_logs.grpc_access_log.logs_dropped"
        before, sent = await region.envoy.counter(written) + await region.envoy.counter(dropped), 0
        for _ in range(20):
            assert set(await asyncio.gather(*(region.ask() for _ in range(20)))) == {200}
            sent += 20
        # Every record is done with soon: written, if to a stream that then fails, or dropped. None waits on.
        for _ in range(200):
            seen = await region.envoy.counter(written) + await region.envoy.counter(dropped) - before
            if seen >= sent:
                break
            await asyncio.sleep(0.1)
        assert sent <= seen <= sent + 1, "the first request's own record may have come late"


@pytest.mark.parametrize("fails", [False, True])
async def test_with_its_agent_dead_a_cell_is_judged_by_gateways(tmp_path: Path, fails: bool) -> None:
    """The controller cannot reach the engine itself: only the gateways' word is left."""
    cells = [Cell(name) for name in "abc"]
    reports = {"flush_s": 0.1, "alive_s": ALIVE_S}
    # Only what gateways met since the silence began counts: on a busy machine they tell of it late.
    lifecycle = {"ramp_s": 0, "barrier_s": 0.2, "ttl_s": 3.0}
    async with running_region(tmp_path, *cells, gateway_reports=reports, lifecycle=lifecycle) as region:
        for _ in range(30):
            assert await region.ask() == 200
        region.controller.inquiry.ask = lambda cell, question, timeout: region.loop.answered(  # type: ignore[method-assign]
            cell, Answer.NO_ANSWER, "cut off"
        )
        if fails:
            cells[2].status = 400
        region.silent.add("c")
        traffic = asyncio.create_task(_keep_asking(region))
        try:
            await until(lambda: _lost(region, "c"))
            if fails:
                await until(lambda: region.weights()["c"] <= 2, 30)
            else:
                await asyncio.sleep(ALIVE_S + 1.0)
                assert _state(region, "c") is CellState.READY
        finally:
            traffic.cancel()
            await asyncio.gather(traffic, return_exceptions=True)
        if not fails:
            assert region.weights()["c"] == 100
            # No request, no evidence: the silence is judged as without gateways.
            await until(lambda: _state(region, "c") is CellState.FAILED)


async def _keep_asking(region: Region) -> None:
    while True:
        await region.ask()
        await asyncio.sleep(0.01)


def _refusals(region: Region, cell: str) -> int:
    """Connections in a row that the gateway reported as refused."""
    fleet = region.loop.fleet
    return int(fleet.gateway_refused[fleet.row(cell)])


def _lost(region: Region, cell: str) -> bool:
    fleet = region.loop.fleet
    return bool(fleet.telemetry_lost[fleet.row(cell)])


def _state(region: Region, cell: str) -> CellState:
    return region.loop.book.life(cell).state


def _totals(ok: int, client_errors: int) -> pb.RequestTotals:
    return pb.RequestTotals(ok=ok, client_errors=client_errors)
