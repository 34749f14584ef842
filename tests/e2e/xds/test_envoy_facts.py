"""Settings of the generated configuration whose absence a stock Envoy would make felt."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from headrace_controller.settings import EnvoySettings
from tests.e2e.xds.cells import Cell, CuttingCell, running_cells
from tests.e2e.xds.stack import PATIENT_CHECKS_S, Stack, running_stack, until, until_async
from tests.e2e.xds.test_weights import share

NO_CHECKS = EnvoySettings(health_checks=False, expose_upstream=True)
HEADERS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def test_health_and_weights_wait_for_no_merging(tmp_path: Path) -> None:
    """Envoy's default merges what it learns within a second: a new engine would be left out so long."""
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 1}}) as stack:
        await stack.healthy("m", 1)
        stack.control.publish({"m": {b: 1}})

        async def served() -> bool:
            return (await stack.ask()).status == 200

        await until_async(served)
        for weight in (50, 60, 5):
            stack.control.publish({"m": {a: weight, b: 95}})
            await stack.control.in_force()
        await stack.healthy("m", 2)
        await asyncio.sleep(1.2)
        assert await stack.envoy.counter("cluster_manager.cluster_updated_via_merge") == 0
        assert await stack.envoy.counter("cluster_manager.update_merge_cancelled") == 0
        assert await share(stack, a, 60) <= 12


async def streaming(stack: Stack) -> aiohttp.ClientResponse:
    body = io.BytesIO(json.dumps({"model": "m"}).encode())
    return await stack.session.post(
        stack.url + "/v1/completions", data=body, headers={"content-type": "application/json"}
    )


async def test_a_clients_end_reaches_the_engine_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    """Otherwise the engine would go on generating for nobody."""
    cell = Cell("a")
    cell.chunks, cell.chunk_gap_s = 10_000, 0.05
    async with running_cells(cell), running_stack(tmp_path, {"m": {cell: 1}}) as stack:
        response = await streaming(stack)
        await response.content.readany()
        response.close()
        await until(lambda: cell.gone == 1)


async def test_a_clients_end_reaches_the_engine_before_its_first_byte(tmp_path: Path) -> None:
    cell = Cell("a")
    cell.delay_s = 60.0
    async with running_cells(cell), running_stack(tmp_path, {"m": {cell: 1}}) as stack:
        asking = asyncio.create_task(streaming(stack), name="client that goes away")
        await until(lambda: cell.requests == 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: cell.gone == 1)


@pytest.mark.parametrize("begun", [HEADERS, HEADERS + b"6\r\ndata: \r\n"])
async def test_an_answer_that_has_begun_is_not_asked_for_again(tmp_path: Path, begun: bytes) -> None:
    """The client has its headers: it sees the end, and no second engine works for it."""
    other, cutting = Cell("other"), CuttingCell("cutting", begun)
    pools = {"m": {other: 1, cutting: 1000}}
    async with running_cells(other, cutting), running_stack(tmp_path, pools, NO_CHECKS) as stack:
        while not cutting.requests:
            served = other.requests
            response = await streaming(stack)
            assert response.status == 200
            if cutting.requests:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await response.read()
                assert other.requests == served
            response.release()


async def test_idle_connections_end_before_the_engine_ends_them(tmp_path: Path) -> None:
    """vLLM ends them at 5 s; the default here is 4 s, and Envoy's own an hour."""
    cell = Cell("a")
    settings = EnvoySettings(health_checks=False, upstream_idle_timeout_s=0.2)
    async with running_cells(cell), running_stack(tmp_path, {"m": {cell: 1}}, settings) as stack:
        assert (await stack.ask()).status == 200

        async def ended() -> bool:
            return await stack.envoy.counter("cluster.pool/m.upstream_cx_idle_timeout") >= 1

        await until_async(ended)
        assert (await stack.ask()).status == 200
    assert EnvoySettings().upstream_idle_timeout_s < 5


async def test_an_engine_that_failed_its_first_check_is_soon_asked_again(tmp_path: Path) -> None:
    """Without requests Envoy would ask after 60 s only."""
    cell = Cell("late")
    await cell.start()
    await cell.stop()
    settings = EnvoySettings(health_check_interval_s=0.2, health_check_timeout_s=PATIENT_CHECKS_S)
    async with running_stack(tmp_path, {"m": {cell: 1}}, settings, passing=False) as stack:
        await stack.healthy("m", 0)
        async with running_cells(cell):
            await stack.healthy("m", 1, 30.0)
            assert (await stack.ask()).status == 200


@contextmanager
def deaf_port() -> Iterator[int]:
    """A port that answers no connect, like one behind a dropped network: its queue is full."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        port = listening.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", port))
            yield port
        finally:
            for each in waiting:
                each.close()


async def test_a_vanished_host_costs_a_fraction_of_a_second(tmp_path: Path) -> None:
    """Envoy's default waits 5 s for a connection."""
    a, deaf = Cell("a"), Cell("deaf")
    with deaf_port() as port:
        deaf.port = port
        pools = {"m": {a: 1, deaf: 100}}
        async with running_cells(a), running_stack(tmp_path, pools, NO_CHECKS) as stack:
            for _ in range(8):  # Envoy begins anywhere in its turn: the first one may be a's
                began = time.monotonic()
                assert (await stack.ask()).status == 200
                assert time.monotonic() - began < 4.0
            assert await stack.envoy.counter("cluster.pool/m.upstream_cx_connect_timeout") > 0


async def test_an_engines_own_500s_eject_nobody(tmp_path: Path) -> None:
    """They may be one client's requests; by default five of them take an engine out."""
    a, b = Cell("a"), Cell("b")
    b.status = 500
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 1, b: 1}}, NO_CHECKS) as stack:
        seen = [(await stack.ask()).status for _ in range(40)]
        assert abs(seen.count(500) - 20) <= 4
        assert await stack.envoy.counter("cluster.pool/m.outlier_detection.ejections_enforced_total") == 0


async def test_no_number_of_requests_is_refused_by_the_gateway_itself(tmp_path: Path) -> None:
    """The limits as Envoy holds them; its defaults are 1,024."""
    async with running_stack(tmp_path, {"m": {}}) as stack:
        page = await stack.envoy.get("/clusters")
        for limit in ("max_connections", "max_pending_requests", "max_requests"):
            assert f"pool/m::default_priority::{limit}::1000000" in page, limit
