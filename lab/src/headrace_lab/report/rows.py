"""Each published figure beside ours: one row for each way that it was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from headrace_lab.report.claims import NOT_PUBLISHED, Claim, FleetClaim, Unit
from headrace_lab.report.further import FURTHER, TRACES
from headrace_lab.report.published import (
    BELOW,
    CAPABILITIES,
    KILLS,
    LATENCIES,
    NETWORKS,
    SUSTAINABLE,
    WARNINGS,
)
from headrace_lab.report.results import ON_TIME, Result, fitting, newest
from headrace_lab.scenarios import packaged

COLUMNS: Final = (
    "rr",
    "rr_retries",
    "lr",
    "lr_retries",
    "v2",
    "v3",
    "weights",
    "headrace",
    "oracle",
    "vllm-router",
    "vllm-router-p2c",
    "vllm-router-rr",
    "sglang-router",
    "sglang-router-p2c",
    "sglang-router-rr",
)
WANTED: Final = ("rr", "lr", "v2", "v3", "weights", "headrace", "oracle", "vllm-router", "sglang-router")
"""The arms of the design; the other columns are variants of theirs."""
OURS: Final = "weights"
NO_FIGURE: Final = "no such figure, see what the run says of itself"
MIDDLE: Final = "middle"
FLEETS: Final = ("homogeneous", "heterogeneous", "perturbed")


@dataclass(frozen=True, slots=True)
class Row:
    """One published figure and what was found here, as text by column; a figure that is no arm's own
    stands under `weights`. `source` is None where nothing was run for it: then `command` makes it."""

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
    def published(self) -> bool:
        return (self.theirs, self.plain) != (NOT_PUBLISHED, NOT_PUBLISHED)

    @property
    def missing(self) -> bool:
        """Whether nothing here could have given it."""
        return self.source is None


def rows(results: Sequence[Result], out: str) -> list[Row]:
    """The published figures' rows; `out` is where the commands for what is missing put it."""
    found = [row for claim in (*CAPABILITIES, *KILLS) for row in _rows(claim, results, out)]
    found += [_sustainable(claim, results, out) for claim in SUSTAINABLE]
    found.append(_below(BELOW, results, out))
    found += [row for claim in (*LATENCIES, *NETWORKS, *WARNINGS) for row in _rows(claim, results, out)]
    return found


def further(results: Sequence[Result], out: str) -> list[Row]:
    """The rows of what nobody published."""
    found = [row for claim in FURTHER for row in _rows(claim, results, out)]
    return found + [_sustainable(claim, results, out) for claim in TRACES]


def side_by_side(results: Sequence[Result]) -> list[tuple[Result, dict[str, str]]]:
    """Every run of a fleet at one rate, whatever its load: P95 TTFT by arm, and success where some failed."""
    found = []
    for result in results:
        if result.scenario in FLEETS and result.trusted:
            values = {column: _p95(result, column) for column in COLUMNS}
            found.append((result, {column: value for column, value in values.items() if value}))
    return [each for each in found if len(each[1]) > 1]


def _p95(result: Result, arm: str) -> str:
    ms, success = result.figure(f"ttft_p95_ms.{arm}"), result.figure(f"success.{arm}")
    if ms is None:
        return ""
    return shown(ms, "ms") + (f" ({100 * success:.1f} % good)" if success is not None and success < 1 else "")


def unmeasured_arms(found: Sequence[Row]) -> list[str]:
    """The arms of the design in whose column no figure stands."""
    return [column for column in WANTED if not any(column in row.found for row in found)]


def _rows(claim: Claim, results: Sequence[Result], out: str) -> list[Row]:
    """A row for the best result of each mode, and one for each further result that has an arm which those
    before it lack: arms may have been run apart, as peers are."""
    made = []
    for mode in claim.modes:
        seen: set[str] = set()
        for result in _of(claim, mode, results):
            values = _values(claim, result)
            if values.keys() - seen:
                seen |= values.keys()
                made.append(_row(claim, values, how(result), result.command, result))
        for vain in () if seen else _of(claim, mode, results)[:1]:
            made.append(_row(claim, {}, f"{how(vain)}: {NO_FIGURE}", vain.command, vain))
    return made or [_row(claim, {}, "", claim.command.format(out=out), None)]


def _of(claim: Claim, mode: str, results: Sequence[Result]) -> list[Result]:
    return fitting(results, claim.scenario, mode, claim.kind, claim.variant, claim.rps)


def how(result: Result) -> str:
    """Mode, load, rate, how much it was made from, and what is amiss with it."""
    rate = f"{result.rps:.3g} RPS" if result.rps else ""
    late = any(each.startswith(ON_TIME) for each in result.failed_checks)
    amiss = (
        "" if result.whole else "cut short",
        f"load sent late (P99 {result.late_ms:.0f} ms)" if late else "",
    )
    parts = (result.mode, result.load, rate, result.size, *amiss)
    return ", ".join(part for part in parts if part)


def _row(claim: Claim, found: dict[str, str], mode: str, command: str, source: Result | None) -> Row:
    return Row(claim.what, claim.theirs, claim.plain, found, mode, command, claim.note, source, claim.short)


def _values(claim: Claim, result: Result) -> dict[str, str]:
    names: Mapping[str, str] = claim.columns
    if not names and "{arm}" in claim.figure:
        names = {column: claim.figure.format(arm=column) for column in COLUMNS}
    elif not names:
        names = {OURS: claim.figure}
    values = {column: result.figure(name) for column, name in names.items()}
    return {column: shown(value, claim.unit) for column, value in values.items() if value is not None}


def _sustainable(claim: FleetClaim, results: Sequence[Result], out: str) -> Row:
    """The least, the median and the most over the loads of a fleet's matrix."""
    found: dict[str, str] = {}
    result = None
    whole = f"matrix/{claim.fleet}"
    chosen = [each.scenario for each in results if claim.traces and each.scenario.startswith(f"{whole} (")]
    for each in (fit for name in dict.fromkeys([whole, *chosen]) for fit in fitting(results, name, "sim")):
        ratios = {arm: _ratios(each, arm, claim.traces) for arm in COLUMNS if arm != "rr"}
        if any(ratios.values()):
            found, result = {arm: _spread(values) for arm, values in ratios.items() if values}, each
            break
    return _fleet_row(claim, found, result, out)


def _spread(values: Sequence[float]) -> str:
    return f"{min(values):.2f}-{max(values):.2f}x, median {median(values):.2f}x"


def _ratios(result: Result, arm: str, traces: bool) -> list[float]:
    """Ratios to round-robin at the middle tier, of the public traces or of all other loads."""
    prefix, suffix = "ratio_vs_rr.", f".{MIDDLE}.{arm}"
    of_traces = packaged().matrix_traces
    return [
        value
        for name, value in result.figures.items()
        if name.startswith(prefix) and name.endswith(suffix) and math.isfinite(value)
        if (name.removeprefix(prefix).removesuffix(suffix) in of_traces) is traces
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
    told = "sim, quick" if result is not None and result.data.get("quick") else "sim"
    mode, source = (told, result) if found else ("", None)
    short = not claim.traces
    return Row(claim.what, claim.theirs, claim.plain, found, mode, command, claim.note, source, short)


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
        case "times":
            return f"{value:.1f}x"
        case "us":
            return f"{value / 1e3:.3f} ms"
        case "number":
            return f"{value:g}"
