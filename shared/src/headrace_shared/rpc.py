"""What every gRPC server here is set to."""

from __future__ import annotations

from typing import Final

SERVER_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    # A port that is taken must be an error, not a second server that shares it.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 4 * 1024 * 1024),
    # Envoys and agents ping often; the default takes that for an attack and ends the connection.
    ("grpc.http2.min_ping_interval_without_data_ms", 200),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 200),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # A peer that vanished without a word is noticed within some seconds.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Otherwise the window of a stream that nobody reads keeps growing.
    ("grpc.http2.bdp_probe", 0),
)
"""Options for a `grpc.aio.server`."""
