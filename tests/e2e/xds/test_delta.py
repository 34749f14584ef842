"""A stock Envoy that takes differences instead of whole lists."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace_controller.capability import SizeBound
from headrace_controller.projection.plan import ClassShape, Endpoint, Endpoints, Plan, PoolShape
from headrace_controller.settings import EnvoySettings, GatewaySettings
from headrace_controller.xds.names import CDS
from headrace_controller.xds.snapshot import Snapshot, SnapshotBuilder
from headrace_shared.clock import SystemClock
from tests.e2e.xds.cells import Cell, running_cells
from tests.e2e.xds.stack import GATEWAY, PATIENT_CHECKS_S, running_stack, until, until_async
from tests.e2e.xds.test_weights import share


async def test_weights_are_honoured_and_a_change_is_one_push(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    pools = {"m": {a: 90, b: 10}, "other": {b: 1}}
    async with running_cells(a, b), running_stack(tmp_path, pools, delta=True) as stack:
        await stack.control.in_force()
        assert await share(stack, a) == pytest.approx(90, abs=4)
        pushes = stack.control.status.pushes
        stack.control.publish({"m": {a: 10, b: 90}, "other": {b: 1}})
        await stack.control.in_force()
        assert stack.control.status.pushes == pushes + 1
        assert await stack.envoy.counter("cluster.pool/other.update_success") == 1, "not sent again"
        assert await stack.envoy.counter("cluster.pool/m.update_success") == 2
        assert await share(stack, a) == pytest.approx(10, abs=4)
        assert stack.control.status.nacks == 0


async def test_a_removed_endpoint_is_gone_at_once_and_keeps_its_streams(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    a.chunks, a.chunk_gap_s = 5, 0.15
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 1}}, delta=True) as stack:
        stream = asyncio.create_task(stack.ask(), name="stream")
        await until(lambda: a.requests > 0)
        stack.control.publish({"m": {b: 1}})
        await stack.control.in_force()

        async def gone() -> bool:
            return a.address not in await stack.envoy.hosts("pool/m")

        await until_async(gone)
        await stack.passing()
        assert (await stack.ask()).body["cell"] == "b"
        assert "[DONE]" in (await stream).body


async def test_a_restarted_controller_disturbs_nothing(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 90, b: 10}}, delta=True) as stack:
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


async def test_a_broken_stream_is_taken_up_with_what_differs(tmp_path: Path) -> None:
    """The same publications, so that only the pool whose weights moved meanwhile is sent."""
    a, b = Cell("a"), Cell("b")
    pools = {"m": {a: 90, b: 10}, "other": {b: 1}}
    async with running_cells(a, b), running_stack(tmp_path, pools, delta=True) as stack:
        control = stack.control
        await control.in_force()
        await control.stop()
        builder = control.builder
        await control.start()
        control.builder = builder
        control.publish({"m": {a: 50, b: 50}, "other": {b: 1}})
        await until(lambda: control.status.connected)
        await control.in_force()
        assert control.status.pushes == 1
        assert await share(stack, a, 100) == pytest.approx(50, abs=6)


async def test_a_changed_cluster_serves_on_and_at_once(tmp_path: Path) -> None:
    """A cluster that changes waits for its endpoints again, for which a delta Envoy does not ask."""
    a = Cell("a")
    async with running_cells(a), running_stack(tmp_path, {"m": {a: 1}}, delta=True) as stack:
        control = stack.control
        await control.in_force()
        plan = Plan({"m": {GATEWAY: Endpoints.of([Endpoint("a", "127.0.0.1", a.port, 1)])}})
        settings = EnvoySettings(
            expose_upstream=True, connect_timeout_s=0.5, health_check_timeout_s=PATIENT_CHECKS_S
        )
        gateway = GatewaySettings(id=GATEWAY, host="127.0.0.1")
        other = SnapshotBuilder(gateway, settings, epoch_ns=SystemClock().wall_ns()).build(plan)
        before = control.builder.build(plan)
        control.server.publish(GATEWAY, Snapshot(GATEWAY, {**before.types, CDS: other.types[CDS]}))

        async def changed() -> bool:
            assert (await stack.ask()).status == 200
            page = await stack.envoy.get("/config_dump?resource=dynamic_active_clusters")
            return '"connect_timeout": "0.500s"' in page

        await until_async(changed)
        assert await stack.envoy.counter("cluster.pool/m.init_fetch_timeout") == 0, "the wait is 5 s"
        assert (await stack.envoy.hosts("pool/m")).keys() == {a.address}


@pytest.mark.parametrize("delta", [False, True])
async def test_one_pool_may_take_the_place_of_another_without_a_failed_request(
    tmp_path: Path, delta: bool
) -> None:
    """The old cluster stays until no route needs it, the new one is there before its route."""
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 1}}, delta=delta) as stack:
        seen: set[int] = set()
        for turn in range(6):
            new, old = ("late", "early") if turn % 2 == 0 else ("early", "late")
            stack.control.publish({"m": {a: 1}, new: {b: 1}})
            while not all(each.in_force for each in stack.control.status.types.values()):
                for model in (old, new):
                    seen.add((await stack.ask(model)).status)
                assert (await stack.ask("m")).status == 200
            assert (await stack.ask(new)).status == 200
            assert (await stack.ask(old)).status == 404
            hosts = await stack.envoy.hosts(f"pool/{old}")
            assert hosts == {}, "and then it goes"
        assert seen <= {200, 404}
        assert stack.control.status.nacks == 0


def plan_in_classes(a: Cell, b: Cell) -> Plan:
    """The model `m` on a small and a large cell."""
    small, large = (Endpoint(each.name, "127.0.0.1", each.port, 1) for each in (a, b))
    both, only_large = {GATEWAY: Endpoints.of([small, large])}, {GATEWAY: Endpoints.of([large])}
    shape = PoolShape(classes=(ClassShape(1024, (SizeBound(None, None, 1500),)), ClassShape(8192)))
    return Plan({"m": both}, {"m": shape}, {"m": [both, only_large]})


@pytest.mark.parametrize("delta", [False, True])
async def test_a_pool_may_be_split_and_joined_without_a_failed_request(tmp_path: Path, delta: bool) -> None:
    """A cell of another size joins: the clusters of the classes take the place of the pool's."""
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 1}}, delta=delta) as stack:
        control = stack.control
        await control.in_force()
        for turn in range(6):
            if turn % 2 == 0:
                control.server.publish(GATEWAY, control.builder.build(plan_in_classes(a, b)))
            else:
                control.publish({"m": {a: 1}})
            while not all(each.in_force for each in control.status.types.values()):
                assert (await stack.ask()).status == 200
            assert (await stack.ask()).status == 200
            assert (await stack.ask(prompt="x" * 2000)).body["cell"] == ("b" if turn % 2 == 0 else "a")
        assert control.status.nacks == 0


async def test_the_last_pool_may_go_and_come_back(tmp_path: Path) -> None:
    a = Cell("a")
    async with running_cells(a), running_stack(tmp_path, {"m": {a: 1}}, delta=True) as stack:
        await stack.control.in_force()
        for pools, status in (({}, 404), ({"m": {a: 1}}, 200)):
            stack.control.publish(pools)
            # With no cluster there are no endpoints to take.
            for name in ("CDS", "LDS", "RDS"):
                await until(lambda name=name: stack.control.status.types[name].in_force)  # type: ignore[misc]
            assert (await stack.ask()).status == status
            assert stack.control.status.nacks == 0
