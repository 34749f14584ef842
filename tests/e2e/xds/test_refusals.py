"""A stock Envoy refuses a configuration: it is said, it is not repeated, and requests go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from google.protobuf import any_pb2

from headrace_controller.xds.names import CDS
from headrace_controller.xds.snapshot import Resource, Snapshot, TypeSnapshot
from tests.e2e.xds.cells import Cell, running_cells
from tests.e2e.xds.stack import GATEWAY, Stack, running_stack, until


def spoilt(snapshot: Snapshot) -> Snapshot:
    """The same with a cluster of which Envoy says that its connect time-out must be above 0."""
    good = snapshot.types[CDS].resources["pool/m"]
    message = cluster_pb2.Cluster.FromString(good.box.value)
    message.connect_timeout.Clear()
    message.connect_timeout.SetInParent()
    box = any_pb2.Any()
    box.Pack(message)
    version = snapshot.version(CDS) + "-bad"
    bad = TypeSnapshot(version, {good.name: Resource(good.name, version, box, good.refs)})
    return Snapshot(GATEWAY, {**snapshot.types, CDS: bad})


async def refused(stack: Stack, published: Snapshot) -> None:
    control = stack.control
    control.server.publish(GATEWAY, spoilt(published))
    await until(lambda: control.status.nacks == 1)
    status = control.status.types["CDS"]
    assert status.nacked is not None
    assert status.nacked.version.endswith("-bad")
    assert "ConnectTimeout" in status.nacked.message
    assert not status.in_force
    pushes = control.status.pushes
    await asyncio.sleep(0.5)
    assert (control.status.pushes, control.status.nacks) == (pushes, 1), "not sent again"


@pytest.mark.parametrize("delta", [False, True])
async def test_a_refusal_is_said_once_and_what_follows_is_taken(tmp_path: Path, delta: bool) -> None:
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 1}}, delta=delta) as stack:
        control = stack.control
        await control.in_force()
        published = control.server._gateways[GATEWAY].snapshot
        assert published is not None
        await refused(stack, published)
        assert (await stack.ask()).status == 200
        control.publish({"m": {b: 1}})
        await control.in_force()
        assert control.status.types["CDS"].nacked is None
        await stack.healthy("m", 1)
        assert (await stack.ask()).body["cell"] == "b"
        assert control.status.nacks == 1
