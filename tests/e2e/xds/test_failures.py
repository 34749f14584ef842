"""Engines that die, cut, refuse or fail their checks, before the controller has said a word."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from headrace_controller.settings import EnvoySettings
from tests.e2e.xds.cells import Cell, CuttingCell, running_cells
from tests.e2e.xds.stack import PATIENT_CHECKS_S, Stack, running_stack, until_async

NO_CHECKS = EnvoySettings(health_checks=False, expose_upstream=True)


async def statuses(stack: Stack, requests: int, **more: str) -> Counter[int]:
    """What so many requests, one after the other, were answered with."""
    return Counter([(await stack.ask(**more)).status for _ in range(requests)])


async def test_a_dead_engine_costs_no_request(tmp_path: Path) -> None:
    a, dead = Cell("a"), Cell("dead")
    async with running_cells(a, dead), running_stack(tmp_path, {"m": {a: 1, dead: 100}}, NO_CHECKS) as stack:
        await dead.stop()
        assert await statuses(stack, 120) == {200: 120}
        assert await stack.envoy.counter("cluster.pool/m.upstream_rq_retry") > 0


async def test_an_engine_that_ends_before_its_first_byte_costs_no_request(tmp_path: Path) -> None:
    """The heavy one of the pool, and with a body too large for the default retry buffer."""
    a, cutting = Cell("a"), CuttingCell("cutting")
    pools = {"m": {a: 1, cutting: 100}}
    async with running_cells(a, cutting), running_stack(tmp_path, pools, NO_CHECKS) as stack:
        assert await statuses(stack, 3, prompt="x" * 1_500_000) == {200: 3}
        assert await statuses(stack, 100) == {200: 100}
        assert cutting.requests > 0


async def test_a_baseline_does_not_retry(tmp_path: Path) -> None:
    a, cutting = Cell("a"), CuttingCell("cutting")
    pools = {"m": {a: 1, cutting: 1}}
    async with running_cells(a, cutting), running_stack(tmp_path, pools, baseline="rr") as stack:
        await stack.healthy("m", 2)
        seen = await statuses(stack, 20)
        assert seen[503] >= 5
        failed = next(each for each in [await stack.ask() for _ in range(4)] if each.status == 503)
        assert failed.body["error"]["code"] == "replica_failed"


async def test_client_errors_eject_nobody(tmp_path: Path) -> None:
    a, small = Cell("a"), Cell("small")
    small.status = 400
    async with running_cells(a, small), running_stack(tmp_path, {"m": {a: 1, small: 1}}) as stack:
        await stack.healthy("m", 2)
        seen = await statuses(stack, 80)
        assert abs(seen[400] - 40) <= 4
        assert await stack.envoy.counter("cluster.pool/m.outlier_detection.ejections_enforced_total") == 0


async def test_an_engine_that_only_fails_is_ejected_as_a_backstop(tmp_path: Path) -> None:
    a, b, bad = Cell("a"), Cell("b"), Cell("bad")
    bad.status = 503
    async with running_cells(a, b, bad), running_stack(tmp_path, {"m": {a: 1, b: 1, bad: 1}}) as stack:
        await stack.healthy("m", 3)
        seen = await statuses(stack, 60)
        # Five in a row, and those that come before every thread of Envoy knows; else a third of all.
        assert 5 <= seen[503] <= 15
        hosts = await stack.envoy.hosts("pool/m")
        assert hosts[bad.address]["health_status"].get("failed_outlier_check")


async def test_engines_that_fail_their_checks_get_nothing(tmp_path: Path) -> None:
    """Not even when all of them do: no panic routing."""
    a, b = Cell("a"), Cell("b")
    settings = EnvoySettings(health_check_interval_s=0.1, health_check_timeout_s=PATIENT_CHECKS_S)
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 1, b: 1}}, settings) as stack:
        await stack.healthy("m", 2)
        a.healthy = False
        await stack.healthy("m", 1)
        before = a.requests
        assert await statuses(stack, 20) == {200: 20}
        assert a.requests == before
        b.healthy = False
        await stack.healthy("m", 0)
        answer = await stack.ask()
        assert (answer.status, answer.body["error"]["code"]) == (503, "no_ready_replica")
        a.healthy = True
        await stack.healthy("m", 1)

        async def served() -> bool:
            return (await stack.ask()).status == 200

        await until_async(served)
