"""TLS from settings: files in, credentials and contexts out, errors that name the file."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import grpc

from headrace_shared import log
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


class ServerIdentity:
    """What a server shows and demands, from its files; renewed files serve the next connections.

    Connections that are open stay as they are. `field` names the setting in errors, `protocol` is what
    its contexts agree to speak (ALPN). Raises TlsError when the files cannot be used; of later ones that
    cannot, the log tells, and those before serve on.
    """

    def __init__(self, tls: TlsSettings, field: str, protocol: str = "h2") -> None:
        self._tls = tls
        self._field = field
        self._protocol = protocol
        self._stamp = self._stamps()
        self._first, self._context = self._load()
        self._renewed: grpc.ServerCertificateConfiguration | None = None
        self._reader: threading.Thread | None = None
        self._refused: object = None
        self._log = log.get("tls")

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that follow the files."""
        demand = self._tls.ca is not None
        return grpc.dynamic_ssl_server_credentials(self._first, self._fetch, demand)

    def context(self) -> ssl.SSLContext:
        """What a server that does not leave TLS to gRPC shows and demands of its next connection."""
        return self._context

    def renew(self) -> None:
        """Begin to look at the files, in a thread of its own; returns at once. A disk that hangs must
        hold up neither the caller nor the end of the program, nor a handshake."""
        if self._reader is None or not self._reader.is_alive():
            self._reader = threading.Thread(target=self.read, name=f"renew {self._field}", daemon=True)
            self._reader.start()

    def read(self) -> None:
        """Take up files that changed; blocking."""
        stamp = self._stamps()
        if stamp in (self._stamp, self._refused):
            return
        try:
            self._renewed, self._context = self._load()
        except TlsError as error:
            # A certificate is often written before its key: the next look may find both.
            self._log.warning("renewed TLS files cannot be used; those before serve on", error=str(error))
            self._refused = stamp
            return
        self._stamp, self._refused = stamp, None
        self._log.info("TLS files renewed", setting=self._field)

    def _fetch(self) -> grpc.ServerCertificateConfiguration:
        """What gRPC asks before each handshake; None, which its stubs do not know of, = as before."""
        renewed, self._renewed = self._renewed, None
        return renewed  # type: ignore[return-value]

    def _load(self) -> tuple[grpc.ServerCertificateConfiguration, ssl.SSLContext]:
        tls, field = self._tls, self._field
        if tls.cert is None or tls.key is None:
            raise TlsError(f"{field}: a server needs both cert and key")
        pair = (_read(tls.key, f"{field}.key"), _read(tls.cert, f"{field}.cert"))
        ca = _read(tls.ca, f"{field}.ca") if tls.ca else None
        context = check_pair(tls, field)
        assert context is not None
        context.set_alpn_protocols([self._protocol])
        if tls.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=ca), context

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(path) for path in (self._tls.cert, self._tls.key, self._tls.ca))


class FollowingContext(ssl.SSLContext):
    """For an asyncio server that keeps the context it was given: each connection begins with what
    `current` gives then.

    A context that serves is not loaded anew: files that fail half-way would leave it without its key.
    """

    _current: Callable[[], ssl.SSLContext]

    def __new__(cls, current: Callable[[], ssl.SSLContext]) -> Self:
        made = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        made._current = current
        return made

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """What asyncio begins each connection with."""
        return self._current().wrap_bio(incoming, outgoing, server_side, server_hostname, session)


def server_credentials(tls: TlsSettings, field: str) -> grpc.ServerCredentials:
    """Credentials for a gRPC server; `field` names the setting in errors. Raises TlsError."""
    return ServerIdentity(tls, field).credentials()


def check_pair(tls: TlsSettings, field: str) -> ssl.SSLContext | None:
    """A server's context of cert, key and ca, which demands nothing of clients yet; None without cert.
    Raises TlsError where cert and key do not belong together, or ca holds no certificate."""
    if tls.cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # With a password at hand OpenSSL does not ask the terminal for that of an encrypted key.
        context.load_cert_chain(tls.cert, tls.key, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TlsError(
            f"{field}: cert {tls.cert} and key {tls.key} do not work together ({error}); "
            "give a certificate chain and its own key, unencrypted, both PEM"
        ) from error
    try:
        if tls.ca is not None:
            context.load_verify_locations(tls.ca)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(
            f"{field}.ca: {tls.ca} holds no usable certificate ({error}); give a PEM file"
        ) from error
    return context


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


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    """What differs once a file was written anew."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found is not None else None
