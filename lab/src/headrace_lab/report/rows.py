"""Each published figure beside ours: one row for each way that it was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace_lab.report.published import (
    BELOW,
    REFUSALS_AND_FAULTS,
    SPEEDS_AND_SIGNALS,
    SUSTAINABLE,
    Claim,
    FleetClaim,
    Unit,
)
from headrace_lab.report.results import Result, newest

COLUMNS: Final = (
    "rr",
    "rr_retries",
    "lr",
    "lr_retries",
    "v3",
    "weights",
    "headrace",
    "oracle",
    "vllm-router",
    "sglang-router",
)
OURS: Final = "weights"
MIDDLE: Final = "middle"


@dataclass(frozen=True, slots=True)
class Row:
    """One published figure and what was found here, as text by column; a figure that is no arm's own
    stands under `weights`. `source` is None where nothing was measured: then `command` makes it."""

    what: str
    theirs: str
    plain: str
    found: dict[str, str]
    mode: str
    command: str
    note: str = ""
    source: Result | None = None
    short: bool = False

    @property
    def missing(self) -> bool:
        return not self.found


def rows(results: Sequence[Result], out: str) -> list[Row]:
    """All rows; `out` is where the commands for what is missing put it."""
    found = [row for claim in REFUSALS_AND_FAULTS for row in _rows(claim, results, out)]
    found += [_sustainable(claim, results, out) for claim in SUSTAINABLE]
    found.append(_below(BELOW, results, out))
    found += [row for claim in SPEEDS_AND_SIGNALS for row in _rows(claim, results, out)]
    return found


def _rows(claim: Claim, results: Sequence[Result], out: str) -> list[Row]:
    made = []
    for mode in claim.modes:
        result = newest(results, claim.scenario, mode, claim.kind, claim.variant)
        values = _values(claim, result) if result is not None else {}
        if result is not None and values:
            made.append(_row(claim, values, _how(result), result.command, result))
    return made or [_row(claim, {}, "", claim.command.format(out=out), None)]


def _how(result: Result) -> str:
    """Mode, load and rate."""
    rps = result.figure("below_saturation_rps") or result.data.get("rps")
    rate = f"{rps:.3g} RPS" if isinstance(rps, int | float) else ""
    return ", ".join(part for part in (result.mode, result.load, rate) if part)


def _row(claim: Claim, found: dict[str, str], mode: str, command: str, source: Result | None) -> Row:
    return Row(claim.what, claim.theirs, claim.plain, found, mode, command, claim.note, source, claim.short)


def _values(claim: Claim, result: Result) -> dict[str, str]:
    names = {column: claim.figure.format(arm=column) for column in COLUMNS}
    if "{arm}" not in claim.figure:
        names = {OURS: claim.figure}
    values = {column: result.figure(name) for column, name in names.items()}
    return {column: shown(value, claim.unit) for column, value in values.items() if value is not None}


def _sustainable(claim: FleetClaim, results: Sequence[Result], out: str) -> Row:
    """The least, the median and the most over the loads of a fleet's matrix."""
    result = newest(results, f"matrix/{claim.fleet}", "sim")
    found = {}
    for arm in COLUMNS:
        ratios = _ratios(result, arm) if result is not None and arm != "rr" else []
        if ratios:
            middle = sorted(ratios)[len(ratios) // 2] if len(ratios) % 2 else _mean_middle(ratios)
            found[arm] = f"{min(ratios):.2f}-{max(ratios):.2f}x, median {middle:.2f}x"
    return _fleet_row(claim, found, result, out)


def _mean_middle(values: Sequence[float]) -> float:
    ordered = sorted(values)
    at = len(ordered) // 2
    return (ordered[at - 1] + ordered[at]) / 2


def _ratios(result: Result, arm: str) -> list[float]:
    prefix, suffix = "ratio_vs_rr.", f".{MIDDLE}.{arm}"
    return [
        value
        for name, value in result.figures.items()
        if name.startswith(prefix) and name.endswith(suffix) and math.isfinite(value)
    ]


def _below(claim: FleetClaim, results: Sequence[Result], out: str) -> Row:
    result = newest(results, f"matrix/{claim.fleet}", "sim")
    found = {}
    base = result.figure("p99_ms.baseline_mixed.rr") if result is not None else None
    if result is not None and base:
        for arm in COLUMNS:
            value = result.figure(f"p99_ms.baseline_mixed.{arm}")
            if value is not None and arm != "rr":
                found[arm] = f"{100 * (value / base - 1):+.1f} %"
    return _fleet_row(claim, found, result, out)


def _fleet_row(claim: FleetClaim, found: dict[str, str], result: Result | None, out: str) -> Row:
    command = result.command if result is not None and found else claim.command.format(out=out)
    how = "sim, quick" if result is not None and result.data.get("quick") else "sim"
    return Row(
        claim.what, claim.theirs, claim.plain, found, how if found else "", command, claim.note, result, True
    )


def shown(value: float, unit: Unit) -> str:
    """A figure for people."""
    match unit:
        case "share":
            return f"{100 * value:.2f} %"
        case "ms":
            return f"{value:,.0f} ms"
        case "s":
            return f"{value:.1f} s"
        case "ratio":
            return f"{value:.2f} : 1"
        case "us":
            return f"{value / 1e3:.3f} ms"
        case "number":
            return f"{value:g}"
