"""Plans, settings and requests that the xDS tests share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.rpc import status_pb2

from headrace_controller.projection.plan import Endpoint, Endpoints, Plan
from headrace_controller.settings import EnvoySettings, GatewaySettings
from headrace_controller.xds.names import EDS, cluster_name
from headrace_controller.xds.snapshot import Snapshot, SnapshotBuilder
from headrace_shared.net import HostPort

GATEWAY = GatewaySettings(id="gw-1", host="127.0.0.1", listen=HostPort("127.0.0.1", 10000))

Pools = Mapping[str, Mapping[str, int]]


def plan_of(pools: Pools, gateway: str = GATEWAY.id) -> Plan:
    """A plan from `{model: {"host:port": weight}}`."""
    made: dict[str, dict[str, Endpoints]] = {}
    for model, weights in pools.items():
        endpoints = []
        for number, (address, weight) in enumerate(weights.items()):
            host, _, port = address.rpartition(":")
            endpoints.append(Endpoint(f"cell-{number}", host, int(port), weight))
        made[model] = {gateway: Endpoints.of(endpoints)}
    return Plan(made)


def builder_of(epoch_ns: int = 1, baseline: Any = None, **settings: Any) -> SnapshotBuilder:
    """A builder for the gateway `gw-1`."""
    return SnapshotBuilder(GATEWAY, EnvoySettings(**settings), baseline=baseline, epoch_ns=epoch_ns)


def weights_in(snapshot: Snapshot, model: str) -> dict[str, int]:
    """The endpoints of a pool as `{"host:port": weight}`, read from the bytes that are sent."""
    assert endpoint_pb2.ClusterLoadAssignment.FromString(
        snapshot.types[EDS].resources[cluster_name(model)].box.value
    ).cluster_name == cluster_name(model)
    return weights_of(snapshot.types[EDS].resources[cluster_name(model)].box)


def weights_of(box: Any) -> dict[str, int]:
    """The endpoints in a packed assignment as `{"host:port": weight}`."""
    assignment = endpoint_pb2.ClusterLoadAssignment.FromString(box.value)
    return {
        f"{socket.address}:{socket.port_value}": each.load_balancing_weight.value
        for locality in assignment.endpoints
        for each in locality.lb_endpoints
        for socket in [each.endpoint.address.socket_address]
    }


def request(
    type_url: str,
    names: tuple[str, ...] = (),
    nonce: str = "",
    version: str = "",
    error: str | None = None,
    node: str = GATEWAY.id,
) -> Any:
    """A DiscoveryRequest; `error` makes it a refusal."""
    made = discovery_pb2.DiscoveryRequest(
        type_url=type_url,
        resource_names=names,
        response_nonce=nonce,
        version_info=version,
        node=base_pb2.Node(id=node),
    )
    if error is not None:
        made.error_detail.CopyFrom(status_pb2.Status(code=3, message=error))
    return made


def delta_request(
    type_url: str,
    subscribe: Iterable[str] = (),
    unsubscribe: Iterable[str] = (),
    nonce: str = "",
    error: str | None = None,
    held: Mapping[str, str] | None = None,
    node: str = GATEWAY.id,
) -> Any:
    """A DeltaDiscoveryRequest; `error` makes it a refusal, `held` is what an earlier stream left."""
    made = discovery_pb2.DeltaDiscoveryRequest(
        type_url=type_url,
        resource_names_subscribe=subscribe,
        resource_names_unsubscribe=unsubscribe,
        response_nonce=nonce,
        initial_resource_versions=held or {},
        node=base_pb2.Node(id=node),
    )
    if error is not None:
        made.error_detail.CopyFrom(status_pb2.Status(code=3, message=error))
    return made
