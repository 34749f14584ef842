"""Percentiles and shares over records: the `arms` entry of a result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from headrace_lab.load.records import Record

QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """P50, P95 and P99, interpolated; None where there is no value."""
    if not values:
        return dict.fromkeys(QUANTILES)
    found = np.quantile(np.asarray(values), list(QUANTILES.values()))
    return {name: round(float(value), 2) for name, value in zip(QUANTILES, found, strict=True)}


def success_rate(records: Sequence[Record]) -> float | None:
    """Share of whole answers, 0 … 1; None where nothing was sent."""
    return sum(r.ok for r in records) / len(records) if records else None


def per_cell(records: Iterable[Record], cells: Iterable[str]) -> dict[str, dict[str, float]]:
    """Requests, share of the answered ones, and errors, of each of `cells`."""
    counts = {cell: [0, 0] for cell in cells}
    for record in records:
        if record.cell in counts:
            counts[record.cell][0] += 1
            counts[record.cell][1] += not record.ok
    total = sum(requests for requests, _ in counts.values())
    return {
        cell: {"requests": n, "share": round(n / total, 5) if total else 0.0, "errors": errors}
        for cell, (n, errors) in counts.items()
    }


def arm(records: Sequence[Record], cells: Iterable[str]) -> dict[str, Any]:
    """One arm of a result: counts, success, TTFT and end-to-end percentiles in ms, shares by cell."""
    good = [r for r in records if r.ok]
    return {
        "requests": len(records),
        "success_rate": success_rate(records),
        "ttft_ms": percentiles([r.ttft_ms for r in good if r.ttft_ms is not None]),
        "e2e_ms": percentiles([r.e2e_ms for r in good]),
        "per_cell": per_cell(records, cells),
    }
