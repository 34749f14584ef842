"""Results for tests of the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace_lab.report.results import Result, read

ENVIRONMENT = {
    "command": "headrace-lab live capability --json x.json",
    "cores": 2,
    "versions": {"python": "3.11.7", "headrace-lab": "0.1.0"},
    "date": "2026-01-02T00:00:00+00:00",
}


def result(scenario: str, mode: str, figures: Mapping[str, float | None], **more: Any) -> Result:
    data = {"scenario": scenario, "mode": mode, "seed": 1, "figures": figures, "environment": ENVIRONMENT}
    found = read(Path("x.json"), {**data, **more})
    assert found is not None
    return found


CAPABILITY = result(
    "capability",
    "live",
    {"leak.rr": 0.321, "leak.weights": 0.0, "leak.v3": None},
    load="mixed_30_long",
    rps=10.0,
    arms={"rr": {"requests": 1501}, "weights": {"requests": 1500}},
)


def interval(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.01, "high": value + 0.01}


def line(load: str, vs_rr: float, apart: bool = True) -> dict[str, Any]:
    return {
        "load": load,
        "arm": "weights",
        "tier": "middle",
        "vs_rr": interval(vs_rr),
        "vs_plain": interval(vs_rr),
        "apart_from_rr": apart,
    }


MATRIX = result(
    "matrix/homogeneous",
    "sim",
    {
        "ratio_vs_rr.a.middle.weights": 0.9,
        "ratio_vs_rr.b.middle.weights": 1.2,
        "ratio_vs_rr.b.tight.weights": 9.9,
        "p99_ms.baseline_mixed.rr": 1000.0,
        "p99_ms.baseline_mixed.weights": 800.0,
    },
    lines=[line("a", 0.9), line("b", 1.2)],
    tails=[{"load": "a", "arm": "weights", "vs_plain": interval(1.1)}],
)
