"""One request as a gateway saw it, read from an entry of Envoy's access log.

Entries come from another machine: whatever cannot be is read as absent, and nothing of unbounded
length is kept.
"""

from __future__ import annotations

import ipaddress
from enum import IntEnum
from typing import Any, Final, NamedTuple

REQUESTS_LOG: Final = "headrace-requests"
"""The log of requests, one entry each, that goes together with `TRIES_LOG`."""
TRIES_LOG: Final = "headrace-tries"
"""The log of tries that ended without a whole answer, also of those that were made again elsewhere."""

FAILED_TRY_FLAGS: Final = ("UF", "UC", "UR", "UPE", "UT", "LR")
"""Response flags that are an endpoint's doing; those that `TRIES_LOG` holds."""
_FAILED_TRY: Final = (
    "upstream_connection_failure",
    "upstream_connection_termination",
    "upstream_remote_reset",
    "upstream_protocol_error",
    "upstream_request_timeout",
    "local_reset",
)
_CLIENT_LEFT: Final = ("downstream_connection_termination", "downstream_remote_reset")

MAX_NAME: Final = 2048
MAX_SECONDS: Final = 7 * 86400.0
MAX_BYTES: Final = 1 << 40
_STREAM_TYPE: Final = "text/event-stream"


class Outcome(IntEnum):
    """What became of a request; the first four in the order of the inventory's totals."""

    OK = 0
    CLIENT_ERROR = 1
    THROTTLED = 2
    SERVER_ERROR = 3
    CANCELLED = 4
    """The client left before the answer was whole."""
    UNROUTED = 5
    """Answered by the gateway itself: no endpoint was chosen."""


OUTCOMES: Final = ("ok", "client_errors", "throttled", "server_errors", "cancelled", "unrouted")
"""By `Outcome`, as metrics and people call them."""


class Record(NamedTuple):
    """One request, or one try. `upstream` is `address:port`, "" = no endpoint; `cluster` is Envoy's.

    `broken`: the try ended without a whole answer; `refused`: nothing listened. Times in s since the
    request's begin, None = not reached; the first byte is the header's, not the first token's, where
    the answer is `streamed`. `client` is the address of who connected.
    """

    outcome: Outcome
    upstream: str = ""
    cluster: str = ""
    status: int = 0
    client: str = ""
    request_bytes: int = 0
    first_byte_s: float | None = None
    last_byte_s: float | None = None
    streamed: bool = False
    broken: bool = False
    refused: bool = False


def read_record(entry: Any) -> Record:
    """Read an HTTPAccessLogEntry. Never raises for what a peer may send."""
    common, response = entry.common_properties, entry.response
    status = response.response_code.value if response.HasField("response_code") else 0
    flags = common.response_flags if common.HasField("response_flags") else None
    upstream = _address(common.upstream_remote_address) if common.HasField("upstream_remote_address") else ""
    broken = flags is not None and any(getattr(flags, name) for name in _FAILED_TRY)
    size = entry.request.request_body_bytes
    return Record(
        outcome=_judge(status, flags, upstream, broken),
        upstream=upstream,
        cluster=common.upstream_cluster if len(common.upstream_cluster) <= MAX_NAME else "",
        status=status if status < 1000 else 0,
        client=_host(common.downstream_remote_address),
        request_bytes=size if size <= MAX_BYTES else 0,
        first_byte_s=_seconds(common, "time_to_first_upstream_rx_byte"),
        last_byte_s=_seconds(common, "time_to_last_upstream_rx_byte"),
        streamed=response.response_headers.get("content-type", "").startswith(_STREAM_TYPE),
        broken=broken,
        refused=flags is not None and flags.upstream_connection_failure,
    )


def _judge(status: int, flags: Any, upstream: str, broken: bool) -> Outcome:
    if flags is not None and any(getattr(flags, name) for name in _CLIENT_LEFT):
        return Outcome.CANCELLED
    if not upstream:
        return Outcome.UNROUTED
    if broken or status >= 500 or status < 100:
        return Outcome.SERVER_ERROR
    if status == 429:
        return Outcome.THROTTLED
    return Outcome.CLIENT_ERROR if status >= 400 else Outcome.OK


def _seconds(common: Any, field: str) -> float | None:
    if not common.HasField(field):
        return None
    duration = getattr(common, field)
    value = duration.seconds + duration.nanos / 1e9
    return value if 0.0 <= value <= MAX_SECONDS else None


def read_address(address: Any) -> str:
    """`address:port` of an envoy Address; "" where it is none of an IP endpoint."""
    return _address(address)


def _address(address: Any) -> str:
    socket = address.socket_address
    host, port = socket.address, socket.port_value
    return join_address(host, port) if host and 0 < port < 65536 else ""


def join_address(host: str, port: int) -> str:
    """One spelling for one endpoint, whoever spelt it; "" where `host` is no IP address."""
    if ":" not in host and len(host) <= 15:
        return f"{host}:{port}"
    try:
        return f"[{ipaddress.IPv6Address(host)}]:{port}"
    except ValueError:
        return ""


def _host(address: Any) -> str:
    host = address.socket_address.address
    return host if len(host) <= 64 else ""
