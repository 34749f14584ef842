"""TLS for gRPC, from settings: files in, credentials out, errors that name the file."""

from __future__ import annotations

from pathlib import Path

import grpc

from headrace_shared.config import Settings


class TlsSettings(Settings):
    """Paths of PEM files.

    A server needs `cert` and `key`; with `ca` it also demands and checks its clients'
    certificates (mutual TLS). A client needs `ca`; with `cert` and `key` it shows its own.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


class TlsError(Exception):
    """TLS files that cannot be used."""


def server_credentials(tls: TlsSettings, field: str) -> grpc.ServerCredentials:
    """Credentials for a gRPC server; `field` names the setting in errors. Raises TlsError."""
    if tls.cert is None or tls.key is None:
        raise TlsError(f"{field}: a server needs both cert and key")
    pair = (_read(tls.key, f"{field}.key"), _read(tls.cert, f"{field}.cert"))
    ca = _read(tls.ca, f"{field}.ca") if tls.ca else None
    return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)


def channel_credentials(tls: TlsSettings, field: str) -> grpc.ChannelCredentials:
    """Credentials for a gRPC client; `field` names the setting in errors. Raises TlsError."""
    if tls.ca is None:
        raise TlsError(f"{field}: a client needs ca, the certificate authority of the server")
    if (tls.cert is None) != (tls.key is None):
        raise TlsError(f"{field}: give both cert and key, or neither")
    return grpc.ssl_channel_credentials(
        root_certificates=_read(tls.ca, f"{field}.ca"),
        private_key=_read(tls.key, f"{field}.key") if tls.key else None,
        certificate_chain=_read(tls.cert, f"{field}.cert") if tls.cert else None,
    )


def _read(path: Path, field: str) -> bytes:
    try:
        pem = path.read_bytes()
    except OSError as error:
        raise TlsError(f"{field}: {path}: {error.strerror or error}; give a readable PEM file") from error
    if b"-----BEGIN " not in pem:
        raise TlsError(f"{field}: {path} holds no PEM block; expected a line '-----BEGIN ...'")
    return pem
