"""What differs between the engine versions that a cell can play."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """One version's ways.

    `kv_names` are the KV fill gauges without their prefix; `engine_label` and `http_counter` say
    whether series carry `engine="0"` and whether HTTP requests are counted; `nested_errors`
    whether an error body is wrapped in `{"error": …}`.
    """

    version: str
    v0: bool
    kv_names: tuple[str, ...]
    engine_label: bool
    http_counter: bool
    nested_errors: bool


def read_dialect(version: str) -> Dialect:
    """The dialect of a version such as `0.6.6` or `0.32.0`. Raises ValueError."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise ValueError(f"engine version {version!r} is not understood; write it as in 0.32.0 or 0.6.6")
    number = (int(match[1]), int(match[2]))
    if number < (0, 10):
        kv_names: tuple[str, ...] = ("gpu_cache_usage_perc",)
    elif number < (0, 11):
        kv_names = ("gpu_cache_usage_perc", "kv_cache_usage_perc")
    else:
        kv_names = ("kv_cache_usage_perc",)
    v1 = number >= (0, 8)
    return Dialect(
        version=version,
        v0=not v1,
        kv_names=kv_names,
        engine_label=v1,
        http_counter=v1,
        nested_errors=number >= (0, 10),
    )
