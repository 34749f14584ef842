"""The names that resources, snapshots and streams agree on."""

from __future__ import annotations

from typing import Final

CDS: Final = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
EDS: Final = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LDS: Final = "type.googleapis.com/envoy.config.listener.v3.Listener"
RDS: Final = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"

TYPES: Final[tuple[str, ...]] = (CDS, EDS, LDS, RDS)
"""In the order in which additions are sent: what is referred to goes before what refers to it."""

WHOLE: Final = frozenset({CDS, LDS})
"""Types that an Envoy asks for without naming what it wants."""

SHORT: Final[dict[str, str]] = {CDS: "CDS", EDS: "EDS", LDS: "LDS", RDS: "RDS"}
"""What people, metrics and logs call a type."""

LISTENER: Final = "headrace"
ROUTES: Final = "headrace"

CONTROLLER_CLUSTER: Final = "headrace-controller"
"""The static cluster of our bootstrap, by which an Envoy reaches its controller."""

METADATA_NAMESPACE: Final = "headrace"
"""The dynamic-metadata namespace of a request; `model` in it is the body's `model`."""

STREAMS_KEY: Final = "streams"
"""In that namespace: the body's `stream`, as it stands there."""

PICK_NAMESPACE: Final = "headrace-pick"
"""That of the endpoints which the picker names; no filter that reads requests writes there."""
PICK_KEY: Final = "endpoints"
GATEWAY_METADATA: Final = "x-headrace-gateway"
"""By which a gateway says in gRPC metadata who it is, where the protocol has no place for it."""


_POOL: Final = "pool/"
_CLASS: Final = "class/"


def cluster_name(model: str) -> str:
    """The cluster, and the EDS resource, of the pool that serves `model`."""
    return f"{_POOL}{model}"


def class_name(model: str, max_model_len: int) -> str:
    """The cluster, and the EDS resource, of one capability class of a pool that has several."""
    return f"{_CLASS}{max_model_len}/{model}"


def model_of(cluster: str) -> str | None:
    """The model whose pool, or class of a pool, a cluster is; None for a cluster of another kind."""
    if cluster.startswith(_POOL):
        return cluster.removeprefix(_POOL)
    length, separator, model = cluster.removeprefix(_CLASS).partition("/")
    return model if separator and length.isdigit() and cluster.startswith(_CLASS) else None


def length_of(cluster: str) -> int | None:
    """The length of the class that a cluster of ours is, tokens; 0 for a whole pool, None for a cluster
    of another kind."""
    if cluster.startswith(_POOL):
        return 0
    return int(cluster.removeprefix(_CLASS).partition("/")[0]) if model_of(cluster) is not None else None
