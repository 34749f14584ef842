"""The names that resources, snapshots and streams agree on."""

from __future__ import annotations

from typing import Final

CDS: Final = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
EDS: Final = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LDS: Final = "type.googleapis.com/envoy.config.listener.v3.Listener"
RDS: Final = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"

TYPES: Final[tuple[str, ...]] = (CDS, EDS, LDS, RDS)
"""In the order in which additions are sent: what is referred to goes before what refers to it."""

SHORT: Final[dict[str, str]] = {CDS: "CDS", EDS: "EDS", LDS: "LDS", RDS: "RDS"}
"""What people, metrics and logs call a type."""

LISTENER: Final = "headrace"
ROUTES: Final = "headrace"

METADATA_NAMESPACE: Final = "headrace"
"""The dynamic-metadata namespace of a request; `model` in it is the body's `model`."""


def cluster_name(model: str) -> str:
    """The cluster, and the EDS resource, of the pool that serves `model`."""
    return f"pool/{model}"
