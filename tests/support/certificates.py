"""A server and a client of one authority, for tests of who may speak for whom."""

from __future__ import annotations

from pathlib import Path

import grpc
import trustme

from headrace_shared.tls import TlsSettings


def server_and_client(directory: Path, name: str) -> tuple[TlsSettings, grpc.ChannelCredentials]:
    """Settings of a server on 127.0.0.1, its files in `directory`, and what a client named `name` shows."""
    authority = trustme.CA()
    files = {kind: directory / f"{kind}.pem" for kind in ("ca", "cert", "key")}
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert(name)
    authority.cert_pem.write_to_path(files["ca"])
    files["cert"].write_bytes(b"".join(pem.bytes() for pem in server.cert_chain_pems))
    server.private_key_pem.write_to_path(files["key"])
    shown = grpc.ssl_channel_credentials(
        authority.cert_pem.bytes(),
        client.private_key_pem.bytes(),
        b"".join(pem.bytes() for pem in client.cert_chain_pems),
    )
    return TlsSettings(**files), shown
