"""How the engines of each pool are spoken to, with what the settings' files hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace_controller.settings import PoolSettings
from headrace_shared.tls import TlsError

MAX_KEY_BYTES: Final = 16384
_PEM: Final = b"-----BEGIN "


@dataclass(frozen=True, slots=True)
class UpstreamTls:
    """PEM texts; "" = none. Without `ca` nobody's certificate is checked."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class Upstream:
    """One pool's engines. With `tls` all of them are reached by it; `api_key` goes with each request."""

    tls: UpstreamTls | None = None
    api_key: str = ""


PLAIN_UPSTREAM: Final = Upstream()


def read_upstreams(pools: Mapping[str, PoolSettings]) -> dict[str, Upstream]:
    """Read the files that `pools` name. Raises TlsError, which names the setting and the remedy."""
    found = {model: _read_upstream(model, pool) for model, pool in pools.items()}
    return {model: upstream for model, upstream in found.items() if upstream != PLAIN_UPSTREAM}


def _read_upstream(model: str, pool: PoolSettings) -> Upstream:
    field = f"pools.{model}"
    tls = None
    if pool.tls is not None:
        tls = UpstreamTls(
            ca=_pem(pool.tls.ca, f"{field}.tls.ca"),
            cert=_pem(pool.tls.cert, f"{field}.tls.cert"),
            key=_pem(pool.tls.key, f"{field}.tls.key"),
            server_name=pool.tls.server_name or "",
        )
    return Upstream(tls, _key(pool.api_key_file, f"{field}.api_key_file"))


def _pem(path: Path | None, field: str) -> str:
    if path is None:
        return ""
    content = _content(path, field, "give a readable PEM file")
    if _PEM not in content or not content.isascii():
        raise TlsError(f"{field}: {path} holds no PEM block; expected a line '-----BEGIN ...'")
    return content.decode("ascii")


def _key(path: Path | None, field: str) -> str:
    if path is None:
        return ""
    text = _content(path, field, "give a readable file that holds the key").strip()
    # It goes into a header, and Envoy reads commands between per cent signs there.
    if not text or len(text) > MAX_KEY_BYTES or not all(0x20 < byte < 0x7F for byte in text):
        raise TlsError(
            f"{field}: {path} holds no key; write one line of printable letters without spaces, "
            f"at most {MAX_KEY_BYTES}"
        )
    return text.decode("ascii")


def _content(path: Path, field: str, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsError(f"{field}: {path}: {error.strerror or error}; {remedy}") from error
