"""Whether an NVML library can be seen from outside, without loading it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

NAME: Final = "libnvidia-ml.so.1"
_CACHE: Final = Path("/etc/ld.so.cache")
_MAX_CACHE_BYTES: Final = 16 * 1024 * 1024
_USUAL: Final = (
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
)


def is_visible() -> bool:
    """Whether the dynamic linker's cache, its search path or the usual folders hold the library.

    Only a hint: a linker can know other places.
    """
    return any((folder / NAME).exists() for folder in _folders()) or _cached()


def _folders() -> Iterator[Path]:
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder:
            yield Path(folder)
    yield from map(Path, _USUAL)


def _cached() -> bool:
    try:
        with _CACHE.open("rb") as cache:
            return NAME.encode() in cache.read(_MAX_CACHE_BYTES)
    except OSError:
        return False
