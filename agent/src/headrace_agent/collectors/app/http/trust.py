"""Whom an engine's certificate must be signed by, and what the agent shows of itself: TLS from settings."""

from __future__ import annotations

import os
import ssl
from functools import cache
from pathlib import Path
from typing import Final

from headrace_agent.settings import CellSettings, EngineTlsSettings
from headrace_shared import log
from headrace_shared.tls import TlsError

_PEM: Final = b"-----BEGIN "

Signature = tuple[tuple[int, int, int] | None, ...]


class Trust:
    """The TLS of connections to one engine.

    The files are looked at whenever a connection is made, so that renewed ones need no restart;
    while new ones cannot be used, as they are just being written, those of before serve on.
    """

    def __init__(self, tls: EngineTlsSettings | None = None, field: str = "tls") -> None:
        """`field` names the setting in errors; without `tls` the system's authorities are trusted.

        Raises headrace_shared.tls.TlsError where the files cannot be used.
        """
        self._tls = tls or EngineTlsSettings()
        self._field = field
        self._seen: Signature | None = None
        self._context: ssl.SSLContext | None = None
        self._log = log.get("engine")
        self.server_name = self._tls.server_name
        if tls is not None:
            self.context()

    @property
    def shows_itself(self) -> bool:
        """Whether the agent has a certificate to show."""
        return self._tls.cert is not None

    def context(self) -> ssl.SSLContext:
        """What a connection is made with now."""
        files = (self._tls.ca, self._tls.cert, self._tls.key)
        if not any(files):
            return _system()
        signature = tuple(map(_signature, files))
        if self._context is None or signature != self._seen:
            self._seen = signature
            try:
                self._context = load(self._tls, self._field)
            except TlsError as error:
                if self._context is None:
                    raise
                self._log.warning("renewed TLS files cannot be used; the former serve on", cause=str(error))
        return self._context


def engine_trust(cell: CellSettings) -> Trust:
    """The TLS of one cell's engine. Raises headrace_shared.tls.TlsError where its files cannot be used."""
    return Trust(cell.tls, f"cells ({cell.id}): tls")


def load(tls: EngineTlsSettings, field: str) -> ssl.SSLContext:
    """Read the files; `field` names the setting in errors. Raises TlsError."""
    for path, name in ((tls.ca, "ca"), (tls.cert, "cert"), (tls.key, "key")):
        if path is not None:
            _require_pem(path, f"{field}.{name}")
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except OSError as error:
        raise TlsError(f"{field}.ca: {tls.ca}: {error}; give the certificate of the authority") from error
    if tls.cert is not None:
        try:
            # Without a password of ours, OpenSSL would ask the terminal for one.
            context.load_cert_chain(tls.cert, tls.key, password=lambda: "")
        except (OSError, ValueError) as error:
            raise TlsError(
                f"{field}.key: {tls.key} cannot be used with cert {tls.cert}: {error}; "
                "give the key of this certificate, not encrypted"
            ) from error
    return context


def explain(error: Exception) -> str:
    """What to do about a failed handshake, where that is known; else nothing."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if any(words in str(error) for words in ("mismatch", "is not valid for")):
            return "; set the cell's tls.server_name to a name in the engine's certificate"
        return "; set the cell's tls.ca to the authority that signed the engine's certificate"
    if isinstance(error, ssl.SSLError):
        reason = str(getattr(error, "reason", ""))
        if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
            return "; if the engine speaks plain HTTP, write http:// in the cell's url"
        if "CERTIFICATE_REQUIRED" in reason:
            return "; the engine asks for a certificate: set the cell's tls.cert and tls.key"
    return ""


def _signature(path: Path | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _require_pem(path: Path, field: str) -> None:
    try:
        pem = path.read_bytes()
    except OSError as error:
        raise TlsError(f"{field}: {path}: {error.strerror or error}; give a readable PEM file") from error
    if _PEM not in pem:
        raise TlsError(f"{field}: {path} holds no PEM block; expected a line '-----BEGIN ...'")


@cache
def _system() -> ssl.SSLContext:
    """The system's certificate authorities; reading them takes a while, and only https needs them."""
    return ssl.create_default_context()
