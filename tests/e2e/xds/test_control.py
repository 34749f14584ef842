"""Envoy keeps what it holds while the controller is away, and takes what is newer after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.xds.cells import Cell, running_cells
from tests.e2e.xds.envoy import running_envoy
from tests.e2e.xds.stack import running_stack, until, until_async
from tests.e2e.xds.test_weights import share


async def test_a_restarted_controller_disturbs_nothing(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 90, b: 10}}) as stack:
        control = stack.control
        await control.in_force()
        before = control.status.types["EDS"].version
        await control.stop()
        assert await share(stack, a, 100) == pytest.approx(90, abs=6)

        await control.start()
        await until(lambda: control.status.connected)
        await asyncio.sleep(0.3)
        assert control.status.pushes == 0, "nothing is sent before the first publish"
        assert await share(stack, a, 100) == pytest.approx(90, abs=6)

        control.publish({"m": {a: 10, b: 90}})
        await control.in_force()
        assert control.status.types["EDS"].acked > before
        assert await share(stack, a, 100) == pytest.approx(10, abs=6)
        assert control.status.nacks == 0


async def test_long_streams_and_the_control_stream_are_not_cut(tmp_path: Path) -> None:
    """Envoy's default route time-out is 15 s; gRPC's default takes our keep-alive for an attack."""
    cell = Cell("a")
    cell.chunks, cell.chunk_gap_s = 33, 0.5
    async with running_cells(cell), running_stack(tmp_path, {"m": {cell: 1}}) as stack:
        answer = await stack.ask()
        assert answer.status == 200
        assert answer.body.endswith("data: [DONE]\n\n")
        failures = "cluster.headrace-controller.upstream_cx_destroy"
        assert await stack.envoy.counter(failures) == 0
        assert stack.control.status.streams == 1


async def test_an_envoy_with_an_unknown_id_is_refused_and_named(tmp_path: Path) -> None:
    async with running_stack(tmp_path, {"m": {}}) as stack:
        async with running_envoy("gw-typo", stack.control.xds_address, tmp_path):
            await until(lambda: "gw-typo" in stack.control.server.strangers)
            assert stack.control.status.streams == 1
            log = tmp_path / "gw-typo.log"
            # Envoy hears of it, and says so, a moment after the controller has noted it.
            await until(lambda: "no gateway has the id 'gw-typo'" in log.read_text())
        assert "gw-test" in log.read_text()


async def test_two_envoys_may_share_an_id(tmp_path: Path) -> None:
    """Envoy shares a port between processes, so that both even listen."""
    async with running_stack(tmp_path, {"m": {}}) as stack:
        (tmp_path / "second").mkdir()
        async with running_envoy("gw-test", stack.control.xds_address, tmp_path / "second") as second:
            await until_async(second.live)
            await until(lambda: stack.control.status.streams == 2)
            await stack.control.in_force()
            cell = Cell("a")
            async with running_cells(cell):
                stack.control.publish({"m": {cell: 5}})
                await stack.control.in_force()
                for envoy in (stack.envoy, second):
                    assert (await envoy.hosts("pool/m"))[cell.address]["weight"] == 5
        await until(lambda: stack.control.status.streams == 1)
