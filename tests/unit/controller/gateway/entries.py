"""Access-log entries and load reports as an Envoy sends them."""

from __future__ import annotations

from typing import Any

from envoy.config.core.v3 import address_pb2
from envoy.config.endpoint.v3 import load_report_pb2
from envoy.data.accesslog.v3 import accesslog_pb2
from envoy.service.load_stats.v3 import lrs_pb2


def address(text: str) -> Any:
    """The envoy Address of `host:port`."""
    host, _, port = text.rpartition(":")
    return address_pb2.Address(
        socket_address=address_pb2.SocketAddress(address=host.strip("[]"), port_value=int(port))
    )


def entry(
    upstream: str = "10.0.0.1:8000",
    status: int = 200,
    *flags: str,
    cluster: str = "pool/m",
    client: str = "10.9.0.1:4000",
    request_bytes: int = 100,
    first_byte_s: float | None = 0.1,
    last_byte_s: float | None = 0.2,
    content_type: str = "application/json",
) -> Any:
    """One request; "" as upstream = none, status 0 = none."""
    made = accesslog_pb2.HTTPAccessLogEntry()
    common = made.common_properties
    common.upstream_cluster = cluster
    common.downstream_remote_address.CopyFrom(address(client))
    if upstream:
        common.upstream_remote_address.CopyFrom(address(upstream))
    for flag in flags:
        setattr(common.response_flags, flag, True)
    if first_byte_s is not None:
        common.time_to_first_upstream_rx_byte.FromNanoseconds(round(first_byte_s * 1e9))
    if last_byte_s is not None:
        common.time_to_last_upstream_rx_byte.FromNanoseconds(round(last_byte_s * 1e9))
    if status:
        made.response.response_code.value = status
    made.response.response_headers["content-type"] = content_type
    made.request.request_body_bytes = request_bytes
    return made


def load_report(*endpoints: tuple[str, int, int], node: str = "gw-1") -> Any:
    """A report of (upstream, issued, in progress), all in one cluster."""
    stats = [
        load_report_pb2.UpstreamEndpointStats(
            address=address(upstream), total_issued_requests=issued, total_requests_in_progress=open_now
        )
        for upstream, issued, open_now in endpoints
    ]
    locality = load_report_pb2.UpstreamLocalityStats(upstream_endpoint_stats=stats)
    made = lrs_pb2.LoadStatsRequest(
        cluster_stats=[
            load_report_pb2.ClusterStats(cluster_name="pool/m", upstream_locality_stats=[locality])
        ]
    )
    made.node.id = node
    return made
