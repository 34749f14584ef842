"""An Envoy with a configuration of its own, which takes endpoints only: the example that we ship."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from headrace_shared.net import HostPort
from tests.e2e.xds.envoy import envoy_of
from tests.e2e.xds.stack import GATEWAY, Control, Stack, until_async
from tests.support.ports import free_port

EXAMPLE = Path(__file__).parents[3] / "deploy" / "envoy" / "endpoints-only.yaml"


def own_config(xds: HostPort, admin_port: int, port: int, node: str, api_type: str) -> dict[str, Any]:
    """The example with this test's addresses."""
    tree: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    tree["node"]["id"] = node
    tree["admin"]["address"]["socket_address"]["port_value"] = admin_port
    (listener,) = tree["static_resources"]["listeners"]
    listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}
    pool, controller = tree["static_resources"]["clusters"]
    pool["eds_cluster_config"]["eds_config"]["api_config_source"]["api_type"] = api_type
    (locality,) = controller["load_assignment"]["endpoints"]
    locality["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]["port_value"] = xds.port
    return tree


@asynccontextmanager
async def own_stack(
    control: Control,
    directory: Path,
    *,
    node: str = GATEWAY,
    api_type: str = "GRPC",
    change: Any = None,
    wait: bool = True,
) -> AsyncIterator[Stack]:
    """Such an Envoy under `control`; `change` may alter its configuration before it starts."""
    port, admin_port = free_port(), free_port()
    tree = own_config(control.xds_address, admin_port, port, node, api_type)
    if change is not None:
        change(tree)
    async with envoy_of(yaml.safe_dump(tree), admin_port, directory, "own") as envoy:
        await until_async(envoy.live if wait else envoy.up)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            stack = Stack(control, envoy, f"http://127.0.0.1:{port}", session)
            if wait:
                await stack.passing()
            yield stack
