"""A certificate renewed while the server runs: the next connections see it, the open ones stay."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import grpc
import trustme

from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.service import TelemetryService
from headrace_controller.wire.server import WireServer
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import CellTelemetryStub
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from headrace_shared.tls import ServerIdentity, TlsSettings
from tests.integration.controller_ingest.test_stream import Heard, beat, hello, read
from tests.support.clock import FakeClock


def write(authority: trustme.CA, folder: Path, name: str) -> TlsSettings:
    pair = authority.issue_cert("127.0.0.1", common_name=name)
    pair.private_key_pem.write_to_path(folder / "key.pem")
    pair.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return TlsSettings(cert=folder / "cert.pem", key=folder / "key.pem")


def shown(authority: trustme.CA, port: int) -> str:
    """The name in the certificate that the server shows a new connection."""
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        found: Any = secured.getpeercert()
    return dict(part[0] for part in found["subject"])["commonName"]


async def test_a_renewed_certificate_serves_new_connections_and_ends_no_stream(tmp_path: Path) -> None:
    authority = trustme.CA()
    identity = ServerIdentity(write(authority, tmp_path, "first"), "tls")
    heard = Heard()
    service = TelemetryService(Intake(heard, pb.Welcome), FakeClock())
    server = WireServer(service.methods(), SystemClock(), identity.context)
    port = await server.start(HostPort("127.0.0.1", 0))
    trusted = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    try:
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", trusted) as channel:
            call = CellTelemetryStub(channel).Stream(timeout=60)
            await call.write(hello())
            await read(call)
            assert await asyncio.to_thread(shown, authority, port) == "first"
            write(authority, tmp_path, "second")
            await asyncio.to_thread(identity.read)
            assert await asyncio.to_thread(shown, authority, port) == "second"
            assert await asyncio.to_thread(shown, authority, port) == "second"
            await call.write(beat(1, "c1", kv_fill=0.5))
            assert await heard.until("telemetry") == [["c1"]]
            call.cancel()
    finally:
        await server.stop(0.0)
