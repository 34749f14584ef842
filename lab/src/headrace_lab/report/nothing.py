"""Where weights gain nothing, as the results at hand have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace_lab.report.results import Result, newest

FLEETS = ("homogeneous", "perturbed", "heterogeneous")
ALIKE = 0.03
"""Arms whose figures differ by less are called alike."""


def sentences(results: Sequence[Result]) -> list[str]:
    """One a finding; empty where no result can tell."""
    found = [
        *_matrices(results),
        *_tails(results),
        *_saturation(results),
        *_networks(results),
        *_warnings(results),
    ]
    return list(dict.fromkeys(found))


def _lines(result: Result, name: str) -> list[dict[str, Any]]:
    entries = result.data.get(name)
    return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []


def _matrices(results: Sequence[Result]) -> Iterator[str]:
    for fleet in FLEETS:
        result = newest(results, f"matrix/{fleet}", "sim")
        if result is None:
            continue
        lines = [each for each in _lines(result, "lines") if each.get("arm") == "weights"]
        unsure = [
            f"{each['load']} ({each['tier']}) {each['vs_rr']['value']:.2f}x"
            for each in lines
            if each["vs_rr"]["value"] is not None and not _surely_above(each)
        ]
        worse = [
            f"{each['load']} ({each['tier']}) {each['vs_plain']['value']:.2f}x"
            for each in lines
            if "vs_plain" in each and each["vs_plain"]["value"] is not None and each["vs_plain"]["value"] < 1
        ]
        total = len(lines)
        if unsure:
            yield (
                f"{fleet}: in {len(unsure)} of {total} loads and tiers the weights carry no more than "
                f"round-robin, or not surely more: {', '.join(unsure)}."
            )
        if worse:
            yield (
                f"{fleet}: in {len(worse)} of {total} they carry less than the better of round-robin and "
                f"least-request: {', '.join(worse)}."
            )


def _surely_above(line: dict[str, Any]) -> bool:
    """Of a single repetition, which has no interval, the value alone is looked at."""
    ratio = line["vs_rr"]
    return bool(ratio["value"] > 1 and (line.get("apart_from_rr") or ratio["low"] is None))


def _tails(results: Sequence[Result]) -> Iterator[str]:
    result = newest(results, "matrix/homogeneous", "sim")
    if result is None:
        return
    tails = [each for each in _lines(result, "tails") if each.get("arm") == "weights"]
    above = [
        f"{each['load']} {each['vs_plain']['value']:.2f}x"
        for each in tails
        if each["vs_plain"]["value"] is not None and each["vs_plain"]["value"] > 1
    ]
    if above:
        yield (
            "homogeneous, below saturation: P99 TTFT is above that of the better of round-robin and "
            f"least-request in {len(above)} of {len(tails)} loads: {', '.join(above)}."
        )


def _saturation(results: Sequence[Result]) -> Iterator[str]:
    for mode in ("live", "sim"):
        result = newest(results, "saturation", mode)
        if result is None:
            continue
        ours, theirs = result.figure("ttft_p99_ms.weights"), result.figure("ttft_p99_ms.rr")
        if ours is not None and theirs:
            how = "as much as" if abs(ours / theirs - 1) <= ALIKE else f"{ours / theirs:.2f} times"
            yield (
                f"saturation ({mode}): above what any arm can carry, P99 TTFT with weights is {how} "
                "round-robin's; placing does not make capacity."
            )


def _networks(results: Sequence[Result]) -> Iterator[str]:
    for mode in ("live", "sim"):
        result = newest(results, "jitter", mode)
        if result is None:
            continue
        little = {
            name.removeprefix("network_gain."): value
            for name, value in result.figures.items()
            if name.startswith("network_gain.") and value < ALIKE
        }
        if little:
            told = ", ".join(f"{name} {100 * value:+.1f} %" for name, value in little.items())
            yield f"network signals ({mode}) gain nothing in P95 TTFT under: {told}."


def _warnings(results: Sequence[Result]) -> Iterator[str]:
    result = newest(results, "lead-time", "sim")
    if result is None:
        return
    for name, value in result.figures.items():
        stress = name.removeprefix("lead_s_mean.")
        if stress != name and "." not in stress and value < 1:
            yield f"early warning: no lead against {stress} stress ({value:.1f} s)."
