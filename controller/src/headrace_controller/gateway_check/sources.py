"""Where a cluster's endpoints come from, and how soon an Envoy is back after a break."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace_controller.gateway_check.clusters import protocol_of
from headrace_controller.gateway_check.dump import Dump
from headrace_controller.gateway_check.findings import Finding, Tree, branch, duration, items, said, text
from headrace_controller.xds.names import model_of

RECONNECT_LIMIT_S = 5.0
RUNTIME_KEYS = (
    "upstream.healthy_panic_threshold",
    "upstream.zone_routing",
    "outlier_detection",
    "circuit_breakers",
)


def is_ours(cluster: Tree) -> bool:
    """Whether a cluster's endpoints have a name that Headrace gives."""
    return model_of(endpoints_name(cluster)) is not None


def endpoints_name(cluster: Tree) -> str:
    """What a cluster asks for: its service_name, else its own name; empty without EDS."""
    if text(cluster, "type") != "EDS":
        return ""
    return text(branch(cluster, "eds_cluster_config"), "service_name") or text(cluster, "name")


def check_source(dump: Dump, cluster: Tree) -> Iterator[Finding]:
    """Whether a cluster's endpoints can come from Headrace at all."""
    where = f"cluster {text(cluster, 'name')}"
    if text(cluster, "type") != "EDS":
        kind = text(cluster, "type") or "STATIC"
        yield Finding("error", where, "type", f"{kind}: its endpoints come from elsewhere", "type: EDS")
        return
    if not is_ours(cluster):
        yield Finding(
            "error",
            where,
            "eds_cluster_config.service_name",
            f"{endpoints_name(cluster)!r} is no pool of Headrace: it is given no endpoints",
            "service_name: pool/MODEL",
        )
    source = branch(cluster, "eds_cluster_config", "eds_config")
    if "ads" not in source and "api_config_source" not in source:
        yield Finding(
            "error",
            where,
            "eds_cluster_config.eds_config",
            "neither ads nor api_config_source: weights never change",
            "api_config_source with the controller's cluster",
        )
    elif text(branch(source, "api_config_source"), "api_type") not in ("", "GRPC", "DELTA_GRPC"):
        yield Finding(
            "error",
            where,
            "eds_config.api_config_source.api_type",
            f"{text(branch(source, 'api_config_source'), 'api_type')} is not served",
            "api_type: GRPC",
        )


def check_streams(dump: Dump, clusters: list[Tree]) -> Iterator[Finding]:
    """How the Envoy gets and keeps its stream to the controller."""
    seen: set[str] = set()
    for cluster in clusters:
        source = branch(cluster, "eds_cluster_config", "eds_config")
        api = branch(source, "api_config_source")
        setting = "eds_config.api_config_source"
        if "ads" in source:
            api, setting = branch(dump.bootstrap, "dynamic_resources", "ads_config"), "ads_config"
        for service in items(api, "grpc_services"):
            grpc = branch(service, "envoy_grpc")
            name = text(grpc, "cluster_name")
            if name and name not in seen:
                seen.add(name)
                yield from _stream(dump, name, grpc, setting)


def _stream(dump: Dump, name: str, grpc: Tree, setting: str) -> Iterator[Finding]:
    longest = duration(branch(grpc, "retry_policy", "retry_back_off"), "max_interval")
    if longest is None or longest > RECONNECT_LIMIT_S:
        yield Finding(
            "warning",
            f"stream to {name}",
            f"{setting}.grpc_services.envoy_grpc.retry_policy",
            f"max_interval {said(longest, '30', ' s')}: so long it may be away after the controller's "
            "restart",
            "retry_policy: {retry_back_off: {base_interval: 0.2s, max_interval: 2s}}",
        )
    cluster = dump.clusters.get(name, {})
    options = branch(protocol_of(cluster), "explicit_http_config", "http2_protocol_options")
    options = options or branch(cluster, "http2_protocol_options")
    if cluster and "connection_keepalive" not in options:
        yield Finding(
            "warning",
            f"cluster {name}",
            "http2_protocol_options.connection_keepalive",
            "not set: that the controller's host vanished is not noticed for many minutes",
            "connection_keepalive: {interval: 1s, timeout: 3s}",
        )


def check_runtime(dump: Dump) -> Iterator[Finding]:
    """Runtime keys that change clusters behind their configuration's back."""
    for layer in items(dump.bootstrap, "layered_runtime", "layers"):
        for key in sorted(_flat(branch(layer, "static_layer"))):
            if key.startswith(RUNTIME_KEYS):
                yield Finding(
                    "warning",
                    "bootstrap",
                    f"layered_runtime.{key}",
                    "set: it counts instead of what the cluster says",
                    "leave it out",
                )


def _flat(tree: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for key, value in tree.items():
        name = f"{before}.{key}" if before else key
        if isinstance(value, Mapping):
            yield from _flat(value, name)
        else:
            yield name
