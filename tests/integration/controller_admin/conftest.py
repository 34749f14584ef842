"""A controller's inside with three cells, and its pages on a port of loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from headrace_pb.v1 import telemetry_pb2 as pb
from tests.integration.controller_admin.client import Client
from tests.unit.controller.control.region import Region


def populated(more: str = "") -> Region:
    """c1 (of berlin) is READY; c2 has said Hello only; site/c3 (of paris) is READY too."""
    region = Region(more)
    region.connect("c1", "c2")
    region.connect("site/c3", node="n2", site="paris")
    region.tick()
    region.beat("c1", signals=pb.Signals(queue_depth=1, kv_fill=0.5, compute_active=0.25))
    region.beat("site/c3", node="n2", signals=pb.Signals(queue_depth=1, kv_fill=0.25, compute_active=0.25))
    region.tick()
    return region


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    made = populated(f"state_dir: {tmp_path}\n")
    yield made
    made.close()


@pytest.fixture
async def client(region: Region) -> AsyncIterator[Client]:
    async with TestClient(TestServer(region.desk.app)) as started:
        yield started
