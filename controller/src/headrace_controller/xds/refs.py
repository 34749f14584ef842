"""Which resources a built message refers to, read from the message itself."""

from __future__ import annotations

from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2


def refs_of(message: Any) -> frozenset[str]:
    """Names of the routes a listener needs, the clusters routes need, the EDS a cluster needs."""
    if isinstance(message, listener_pb2.Listener):
        return frozenset(_routes(message))
    if isinstance(message, route_pb2.RouteConfiguration):
        return frozenset(
            route.route.cluster
            for host in message.virtual_hosts
            for route in host.routes
            if route.HasField("route")
        )
    if isinstance(message, cluster_pb2.Cluster):
        return frozenset([message.eds_cluster_config.service_name or message.name])
    return frozenset()


def _routes(listener: Any) -> set[str]:
    names: set[str] = set()
    for chain in listener.filter_chains:
        for each in chain.filters:
            manager = http_connection_manager_pb2.HttpConnectionManager()
            if each.typed_config.Unpack(manager) and manager.HasField("rds"):
                names.add(manager.rds.route_config_name)
    return names
