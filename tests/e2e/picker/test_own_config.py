"""The lines that docs/picker.md gives for an Envoy of one's own do what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.picker.stack import running_stack
from tests.e2e.xds.cells import Cell, running_cells
from tests.e2e.xds.envoy import envoy_of
from tests.e2e.xds.stack import GATEWAY, until_async
from tests.support.ports import free_ports

PAGE = Path(__file__).parents[3] / "docs" / "picker.md"


def shown(start: str) -> Any:
    """The YAML block of the page that begins with `start`."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = [each for each in blocks if each.startswith(start)]
    return yaml.safe_load(block)


def reading() -> dict[str, Any]:
    """The filter before it, which the page leaves to the reader."""
    kind = "type.googleapis.com/envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata"
    rules = [
        {
            "selectors": [{"key": key}],
            "on_present": {"metadata_namespace": "headrace", "key": key, "type": "STRING"},
        }
        for key in ("model", "stream", "user")
    ]
    config = {"@type": kind, "request_rules": {"rules": rules}}
    return {"name": "envoy.filters.http.json_to_metadata", "typed_config": config}


def config(listen: int, admin: int, xds: int, cells: tuple[Cell, ...]) -> dict[str, Any]:
    (asking,) = shown("- name: envoy.filters.http.ext_proc")
    (metadata,) = asking["typed_config"]["grpc_service"]["initial_metadata"]
    metadata["value"] = GATEWAY
    asking["typed_config"]["message_timeout"] = "5s"
    kinds = "type.googleapis.com/envoy.extensions"
    router = {"@type": f"{kinds}.filters.http.router.v3.Router"}
    manager = {
        "@type": f"{kinds}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "own",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "v",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "mine"}}],
                }
            ]
        },
        "http_filters": [reading(), asking, {"name": "envoy.filters.http.router", "typed_config": router}],
    }
    h2 = {
        "@type": f"{kinds}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    return {
        "node": {"id": "own", "cluster": "own"},
        "admin": {"address": address(admin)},
        "static_resources": {
            "listeners": [
                {
                    "address": address(listen),
                    "filter_chains": [
                        {
                            "filters": [
                                {
                                    "name": "envoy.filters.network.http_connection_manager",
                                    "typed_config": manager,
                                }
                            ]
                        }
                    ],
                }
            ],
            "clusters": [
                cluster("mine", [cell.port for cell in cells]) | shown("load_balancing_policy:"),
                cluster("headrace-controller", [xds])
                | {
                    "typed_extension_protocol_options": {
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": h2
                    }
                },
            ],
        },
    }


def address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def cluster(name: str, ports: list[int]) -> dict[str, Any]:
    endpoints = [{"endpoint": {"address": address(port)}} for port in ports]
    assignment = {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}
    return {"name": name, "type": "STATIC", "load_assignment": assignment}


async def test_an_envoy_of_ones_own_obeys_and_reports(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    listen, admin = free_ports(2)
    async with running_cells(a, b), running_stack(tmp_path, {a: 1, b: 1}) as stack:
        made = yaml.safe_dump(config(listen, admin, stack.control.xds_address.port, (a, b)))
        async with envoy_of(made, admin, tmp_path, "own") as envoy:
            await until_async(envoy.live)
            stack.url = f"http://127.0.0.1:{listen}"
            for cell in (b, a):
                stack.picker.script = (cell.address,)
                for _ in range(10):
                    assert (await stack.ask(user="u", stream=True)).body["cell"] == cell.name
            ask = stack.picker.asks[-1]
            assert (ask.model, ask.session, ask.streams, ask.routed_length) == ("m", "u", True, None)
            stack.picker.script = None
            assert (await stack.ask(stream=True)).status == 200
            await until_async(lambda: _served(stack.control.served))


async def _served(served: list[Any]) -> bool:
    return bool(served) and served[-1].as_named
