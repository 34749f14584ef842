"""Streams over real gRPC: acknowledged, refused, slow, reconnected, strange and closed."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from headrace_controller.xds.names import CDS, EDS, LDS, RDS
from headrace_controller.xds.server import Hooks
from headrace_controller.xds.stream import Stream
from tests.integration.controller_xds.client import AdsServer, connected, running, until
from tests.unit.controller.xds.builders import builder_of, plan_of

A, B = "10.0.0.1:8000", "10.0.0.2:8000"


async def test_nothing_is_sent_before_the_first_publish() -> None:
    """A starting controller must not take from Envoy what it holds."""
    async with running(AdsServer("gw-1")) as server, connected(server.port) as envoy:
        await envoy.ask(CDS, version="from before")
        await until(lambda: server.xds.status()["gw-1"].connected)
        assert not server.xds.status()["gw-1"].published
        assert await envoy.silent()


async def test_what_is_published_comes_at_once_and_is_acknowledged() -> None:
    heard: list[tuple[str, ...]] = []
    seconds: list[float] = []

    def acked(gateway: str, name: str, took: float) -> None:
        heard.append(("ack", gateway, name))
        seconds.append(took)

    hooks = Hooks(
        on_push=lambda gateway, name: heard.append(("push", gateway, name)),
        on_ack=acked,
    )
    builder = builder_of()
    async with running(AdsServer("gw-1", hooks=hooks)) as server, connected(server.port) as envoy:
        await envoy.ask(CDS)
        await until(lambda: server.xds.status()["gw-1"].connected)
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 1}})))
        await envoy.ack(await envoy.take())
        await envoy.ask(EDS, "pool/m")
        await envoy.ack(await envoy.take(), "pool/m")
        await until(lambda: len(heard) == 4)
        assert heard == [
            ("push", "gw-1", "CDS"),
            ("ack", "gw-1", "CDS"),
            ("push", "gw-1", "EDS"),
            ("ack", "gw-1", "EDS"),
        ]
        assert all(0 <= took < 60 for took in seconds)
        snapshot = builder.build(plan_of({"m": {A: 2}}))
        server.xds.publish("gw-1", snapshot)
        response = await envoy.take()
        assert (response.type_url, response.version_info) == (EDS, snapshot.version(EDS))
        status = server.xds.status()["gw-1"]
        assert not status.types["EDS"].in_force
        await envoy.ack(response, "pool/m")
        await until(lambda: server.xds.status()["gw-1"].types["EDS"].in_force)
        server.xds.publish("gw-1", snapshot)
        assert await envoy.silent()
        assert server.xds.status()["gw-1"].pushes == 3


async def test_a_refusal_is_counted_kept_and_never_loops() -> None:
    heard: list[tuple[str, str, str]] = []
    builder = builder_of()
    hooks = Hooks(on_nack=lambda *each: heard.append(each))
    async with running(AdsServer("gw-1", hooks=hooks)) as server, connected(server.port) as envoy:
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 1}})))
        await envoy.connect("pool/m")
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 2}})))
        refused = await envoy.take()
        await envoy.nack(refused, "pool/m", message="malformed IP address")
        await until(lambda: server.xds.status()["gw-1"].nacks == 1)
        status = server.xds.status()["gw-1"]
        assert heard == [("gw-1", "EDS", "malformed IP address")]
        assert status.last_nack is not None
        assert (status.last_nack.type_name, status.last_nack.version) == ("EDS", refused.version_info)
        assert status.types["EDS"].nacked == status.last_nack
        assert status.types["CDS"].nacked is None
        await asyncio.sleep(0.3)
        assert server.xds.status()["gw-1"].pushes == 5, "not sent again"
        server.xds.publish("gw-1", builder.build(plan_of({"m": {A: 3}})))
        await envoy.ack(await envoy.take(), "pool/m")
        await until(lambda: server.xds.status()["gw-1"].types["EDS"].in_force)
        status = server.xds.status()["gw-1"]
        assert (status.types["EDS"].nacked, status.nacks) == (None, 1)
        assert status.last_nack is not None


async def test_versions_rise_over_a_restart_and_envoy_keeps_its_own_until_then() -> None:
    first = builder_of(epoch_ns=1_000).build(plan_of({"m": {A: 1}}))
    async with running(AdsServer("gw-1")) as server:
        port = server.port
        server.xds.publish("gw-1", first)
        async with connected(port) as envoy:
            await envoy.connect("pool/m")
    async with running(AdsServer("gw-1", port=port)) as server, connected(port) as envoy:
        await envoy.ask(EDS, "pool/m", version=first.version(EDS))
        await until(lambda: server.xds.status()["gw-1"].connected)
        assert server.xds.status()["gw-1"].pushes == 0
        server.xds.publish("gw-1", builder_of(epoch_ns=2_000).build(plan_of({"m": {A: 1}})))
        assert (await envoy.take()).version_info > first.version(EDS)


async def test_an_envoy_that_reconnects_is_not_sent_what_it_has() -> None:
    snapshot = builder_of().build(plan_of({"m": {A: 1}}))
    async with running(AdsServer("gw-1")) as server:
        server.xds.publish("gw-1", snapshot)
        async with connected(server.port) as envoy:
            await envoy.connect("pool/m")
        await until(lambda: not server.xds.status()["gw-1"].connected)
        async with connected(server.port) as again:
            await again.ask(CDS, version=snapshot.version(CDS))
            await again.ask(LDS, version=snapshot.version(LDS))
            await again.ask(RDS, "headrace", version=snapshot.version(RDS))
            await again.ask(EDS, "pool/m", version=snapshot.version(EDS))
            assert (await again.take()).type_url == EDS
            assert await again.silent()


async def test_a_slow_envoy_delays_nobody_and_gets_the_newest() -> None:
    """It stops reading while far more is published than any buffer between holds."""
    builder = builder_of()
    fleet = {f"10.{n // 250}.{n % 250}.1:8000": 1 for n in range(5000)}
    async with (
        running(AdsServer("gw-1")) as server,
        connected(server.port) as slow,
        connected(server.port) as quick,
    ):
        server.xds.publish("gw-1", builder.build(plan_of({"m": fleet})))
        await slow.connect("pool/m")
        await quick.connect("pool/m")
        for weight in range(2, 42):
            fleet = dict.fromkeys(fleet, weight)
            snapshot = builder.build(plan_of({"m": fleet}))
            server.xds.publish("gw-1", snapshot)
            response = await quick.take()
            await quick.ack(response, "pool/m")
        newest = response.version_info
        taken = 0
        while (response := await slow.take()).version_info != newest:
            taken += 1
        assert taken < 39, "versions in between were left out"
        assert server.xds.status()["gw-1"].pushes < 8 + 2 * 40


async def test_several_envoys_share_a_gateway_and_gateways_are_apart() -> None:
    one, two = builder_of(), builder_of()
    async with (
        running(AdsServer("gw-1", "gw-2")) as server,
        connected(server.port) as first,
        connected(server.port) as second,
        connected(server.port, "gw-2") as other,
    ):
        server.xds.publish("gw-1", one.build(plan_of({"m": {A: 1}})))
        await first.connect("pool/m")
        await second.connect("pool/m")
        await other.ask(CDS)
        await until(lambda: server.xds.status()["gw-2"].streams == 1)
        server.xds.publish("gw-1", one.build(plan_of({"m": {B: 1}})))
        await first.ack(await first.take(), "pool/m")
        await until(lambda: server.xds.status()["gw-1"].types["EDS"].acked == first.versions[EDS])
        assert not server.xds.status()["gw-1"].types["EDS"].in_force, "the second has not said yes yet"
        await second.ack(await second.take(), "pool/m")
        await until(lambda: server.xds.status()["gw-1"].types["EDS"].in_force)
        assert server.xds.status()["gw-2"].pushes == 0
        server.xds.publish("gw-2", two.build(plan_of({})))
        assert len((await other.take()).resources) == 0


@pytest.mark.parametrize("node", ["gw-9", ""])
async def test_an_unknown_node_is_told_which_gateways_there_are(node: str) -> None:
    strangers: list[str] = []
    server = AdsServer("gw-1", "gw-2", hooks=Hooks(on_stranger=strangers.append))
    async with running(server), connected(server.port, node) as envoy:
        await envoy.ask(CDS)
        async with asyncio.timeout(30):
            assert await envoy.call.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert "gw-1, gw-2" in await envoy.call.details()
        assert strangers == [node]
        assert server.xds.strangers == {node: 1}
        assert not server.xds.status()["gw-1"].connected


async def test_unknown_gateways_cannot_be_published_to() -> None:
    async with running(AdsServer("gw-1")) as server:
        with pytest.raises(KeyError):
            server.xds.publish("gw-2", builder_of().build(plan_of({})))


async def test_types_that_are_not_served_do_no_harm() -> None:
    async with running(AdsServer("gw-1")) as server, connected(server.port) as envoy:
        server.xds.publish("gw-1", builder_of().build(plan_of({"m": {A: 1}})))
        await envoy.ask("type.googleapis.com/envoy.service.runtime.v3.Runtime", "layer")
        await envoy.ask(CDS)
        assert (await envoy.take()).type_url == CDS


async def test_a_stream_that_breaks_at_its_first_request_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(Stream, "on_request", fails)
    async with running(AdsServer("gw-1")) as server, connected(server.port) as envoy:
        await envoy.ask(CDS)
        async with asyncio.timeout(30):
            assert await envoy.call.code() == grpc.StatusCode.UNAVAILABLE
        assert not server.xds.status()["gw-1"].connected


@pytest.mark.parametrize("node", ["gw-2", "edge-7", "pod-x", "anything"])
async def test_an_envoy_belongs_to_the_gateway_that_its_node_id_matches(node: str) -> None:
    nodes = {"gw-1": ["edge-?", "gw-2"], "gw-2": ["pod-*"], "rest": ["*"]}
    belongs = {"gw-2": "gw-2", "edge-7": "gw-1", "pod-x": "gw-2", "anything": "rest"}
    server = AdsServer("gw-1", "gw-2", "rest", nodes=nodes)
    async with running(server), connected(server.port, node) as envoy:
        await envoy.ask(CDS)
        await until(lambda: server.xds.status()[belongs[node]].connected)
        assert server.xds.strangers == {}


async def closed(server: AdsServer) -> None:
    """Close it; every stream must have ended by then, so that none was waited for until the limit."""
    await server.xds.close()
    assert server.xds._handlers == 0
    await server.envoys.stop()


async def test_closing_ends_every_stream_promptly() -> None:
    """With idle streams, a stream that never asked, and one that does not read."""
    server = AdsServer("gw-1")
    await server.start()
    async with connected(server.port) as idle, connected(server.port) as mute, connected(server.port) as late:
        server.xds.publish("gw-1", builder_of().build(plan_of({"m": {A: 1}})))
        await idle.connect("pool/m")
        await late.ask(CDS)
        await until(lambda: server.xds.status()["gw-1"].streams == 2)
        await closed(server)
        async with asyncio.timeout(30):
            assert await idle.call.code() == grpc.StatusCode.UNAVAILABLE
        assert not server.xds.status()["gw-1"].connected
        assert mute.received == []


async def test_closing_does_not_wait_for_an_envoy_that_reads_nothing() -> None:
    builder = builder_of()
    fleet = {f"10.{n // 250}.{n % 250}.1:8000": 1 for n in range(5000)}
    server = AdsServer("gw-1")
    await server.start()
    async with connected(server.port) as stuck:
        await stuck.ask(EDS, "pool/m")
        await until(lambda: server.xds.status()["gw-1"].connected)
        pushes = -1
        for weight in range(1, 60):
            server.xds.publish("gw-1", builder.build(plan_of({"m": dict.fromkeys(fleet, weight)})))
            await asyncio.sleep(0.02)
            if pushes == server.xds.status()["gw-1"].pushes:
                break
            pushes = server.xds.status()["gw-1"].pushes
        assert pushes < 50, "the stream is stuck in a write"
        await closed(server)
