"""The common form of a benchmark's result, and where it goes."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

PACKAGES = ("grpcio", "httptools", "numpy", "prometheus-client", "protobuf", "requests", "xds-protos")


def environment(name: str) -> dict[str, Any]:
    """What a figure depends on besides the code."""
    return {
        "command": f"make bench NAME={name}",
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def median_us(work: Callable[[], Any], repeats: int) -> float:
    """The median time of `work`, in microseconds, after a warm-up of a tenth of the repeats."""
    for _ in range(max(1, repeats // 10)):
        work()
    times: list[int] = []
    for _ in range(repeats):
        begun = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - begun)
    return statistics.median(times) / 1000


def json_path(description: str) -> Path | None:
    """Read the command line that every benchmark shares."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="write the result here too")
    path: Path | None = parser.parse_args().json
    return path


def report(
    name: str,
    seed: int,
    figures: dict[str, float],
    path: Path | None,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Print the figures, and write the result, with `more` beside them, where a path was given."""
    width = max(map(len, figures))
    for key, value in figures.items():
        print(f"{key:{width}}  {value:,.3f}")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        result = {"scenario": f"bench/{name}", "mode": "bench", "seed": seed, "figures": figures, **more}
        path.write_text(json.dumps(result | {"environment": environment(name)}, indent=2) + "\n")
        print(f"written: {path}")
