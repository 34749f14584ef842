"""The load of each endpoint, read from Envoy's load reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from headrace_controller.gateway.records import read_address

MAX_COUNT: Final = 1 << 32


class Load(NamedTuple):
    """One endpoint in one report: requests `issued` since the report before, and now `in_progress`."""

    upstream: str
    issued: int
    in_progress: int


def read_loads(request: Any) -> Iterator[Load]:
    """The endpoints of a LoadStatsRequest; those whose address or counts cannot be are left out."""
    for cluster in request.cluster_stats:
        for locality in cluster.upstream_locality_stats:
            for endpoint in locality.upstream_endpoint_stats:
                upstream = read_address(endpoint.address)
                issued, open_now = endpoint.total_issued_requests, endpoint.total_requests_in_progress
                if upstream and issued <= MAX_COUNT and open_now <= MAX_COUNT:
                    yield Load(upstream, issued, open_now)
