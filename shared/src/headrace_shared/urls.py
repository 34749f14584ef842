"""Addresses of HTTP as people write them; apart from `net`, because short commands load this one."""

from __future__ import annotations

from urllib.parse import urlsplit


def checked_url(url: str, example: str) -> str:
    """`url` without a slash at its end. Raises ValueError that says what to write, as in `example`, where it
    is no address of HTTP."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"{url[:80]!r} is no address; write http://HOST:PORT, as in {example}")
    return url.rstrip("/")
