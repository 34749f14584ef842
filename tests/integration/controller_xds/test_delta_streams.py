"""Delta streams over real gRPC, beside whole ones on the same server."""

from __future__ import annotations

import asyncio

from headrace_controller.xds.names import CDS, EDS, LDS, RDS
from headrace_controller.xds.server import Hooks
from tests.integration.controller_xds.client import AdsServer, connected, delta_connected, running, until
from tests.unit.controller.xds.builders import builder_of, plan_of, weights_of

A, B = "10.0.0.1:8000", "10.0.0.2:8000"


async def test_a_change_of_weights_costs_one_resource_and_is_acknowledged() -> None:
    acked: list[tuple[str, str]] = []
    hooks = Hooks(on_ack=lambda gateway, name, _: acked.append((gateway, name)))
    builder = builder_of()
    async with running(AdsServer("gw-1", hooks=hooks)) as server, delta_connected(server.port) as envoy:
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 1}, "n": {B: 1}})))
        await envoy.connect("pool/m", "pool/n")
        await until(lambda: all(each.in_force for each in server.xds.status()["gw-1"].types.values()))
        acked.clear()
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 5}, "n": {B: 1}})))
        response = await envoy.take()
        assert [each.name for each in response.resources] == ["pool/m"]
        assert weights_of(response.resources[0].resource) == {A: 5}
        assert not server.xds.status()["gw-1"].types["EDS"].in_force
        await envoy.ack(response)
        await until(lambda: server.xds.status()["gw-1"].types["EDS"].in_force)
        assert acked == [("gw-1", "EDS")]


async def test_both_kinds_of_stream_are_served_at_once() -> None:
    builder = builder_of()
    async with (
        running(AdsServer("gw-1")) as server,
        connected(server.port) as whole,
        delta_connected(server.port) as delta,
    ):
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 1}})))
        await whole.connect("pool/m")
        await delta.connect("pool/m")
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 7}})))
        first, second = await whole.take(), await delta.take()
        assert weights_of(first.resources[0]) == weights_of(second.resources[0].resource) == {A: 7}
        await whole.ack(first, "pool/m")
        await asyncio.sleep(0.05)
        assert not server.xds.status()["gw-1"].types["EDS"].in_force, "the other has not said yes yet"
        await delta.ack(second)
        await until(lambda: server.xds.status()["gw-1"].types["EDS"].in_force)


async def test_an_envoy_that_comes_back_is_sent_what_differs_and_no_more() -> None:
    builder = builder_of()
    async with running(AdsServer("gw-1")) as server:
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 1}, "n": {B: 1}})))
        async with delta_connected(server.port) as envoy:
            await envoy.connect("pool/m", "pool/n")
            held = envoy.held
        await until(lambda: not server.xds.status()["gw-1"].connected)
        pushes = server.xds.status()["gw-1"].pushes
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 1}, "n": {B: 9}})))
        async with delta_connected(server.port) as again:
            again.held = held
            await again.connect("pool/m", "pool/n")
            response = await again.take()
            assert (response.type_url, [each.name for each in response.resources]) == (EDS, ["pool/n"])
            await again.ack(response)
            await until(lambda: all(each.in_force for each in server.xds.status()["gw-1"].types.values()))
            assert server.xds.status()["gw-1"].pushes == pushes + 1


async def test_a_restarted_controller_tells_a_delta_envoy_nothing_before_its_first_publish() -> None:
    plan = plan_of({"m": {A: 1}})
    async with running(AdsServer("gw-1")) as server:
        port = server.port
        server.xds.publish("gw-1", builder_of(epoch_ns=1_000).build(plan))
        async with delta_connected(port) as envoy:
            await envoy.connect("pool/m")
            held = envoy.held
    async with running(AdsServer("gw-1", port=port)) as server, delta_connected(port) as envoy:
        envoy.held = held
        await envoy.connect("pool/m")
        await until(lambda: server.xds.status()["gw-1"].connected)
        await asyncio.sleep(0.1)
        assert server.xds.status()["gw-1"].pushes == 0
        server.xds.publish("gw-1", builder_of(epoch_ns=2_000).build(plan))
        seen = [await envoy.take() for _ in range(3)]
        assert [each.type_url for each in seen] == [CDS, EDS, LDS], "routes wait for their clusters"
        for each in seen:
            versions = [resource.version for resource in each.resources]
            assert versions > [held[each.type_url][resource.name].version for resource in each.resources]
            await envoy.ack(each)
        assert (await envoy.take()).type_url == RDS


async def test_a_refusal_by_delta_is_counted_kept_and_never_loops() -> None:
    heard: list[tuple[str, str, str]] = []
    builder = builder_of()
    hooks = Hooks(on_nack=lambda *each: heard.append(each))
    async with running(AdsServer("gw-1", hooks=hooks)) as server, delta_connected(server.port) as envoy:
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 1}})))
        await envoy.connect("pool/m")
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 2}})))
        refused = await envoy.take()
        await envoy.ask(EDS, nonce=refused.nonce, error="malformed IP address")
        await until(lambda: server.xds.status()["gw-1"].nacks == 1)
        assert heard == [("gw-1", "EDS", "malformed IP address")]
        status = server.xds.status()["gw-1"].types["EDS"]
        assert status.nacked is not None
        assert (status.nacked.version, status.in_force) == (refused.system_version_info, False)
        await asyncio.sleep(0.3)
        assert server.xds.status()["gw-1"].pushes == 5, "not sent again"
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 3}})))
        await envoy.ack(await envoy.take())
        await until(lambda: server.xds.status()["gw-1"].types["EDS"].in_force)
