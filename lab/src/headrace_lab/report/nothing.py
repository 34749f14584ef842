"""Where weights gain nothing, as the results at hand have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace_lab.report.further import FAULTS
from headrace_lab.report.results import Result, newest

FLEETS = ("homogeneous", "perturbed", "heterogeneous")
ALIKE = 0.03
"""Arms whose figures differ by less are called alike."""
LITTLE = 0.05
NAMED = 8
"""So many loads and tiers are named one by one."""


def sentences(results: Sequence[Result]) -> list[str]:
    """One a finding; empty where no result can tell."""
    found = [
        *_matrices(results),
        *_tails(results),
        *_latencies(results),
        *_reroutes(results),
        *_saturation(results),
        *_bursts(results),
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
        known = [each for each in _lines(result, "lines") if each["vs_rr"]["value"] is not None]
        lines = [each for each in known if each.get("arm") == "weights"]
        unsure = [each for each in lines if not _surely_above(each)]
        worse = [each for each in lines if _surely_below(each)]
        total = len(lines)
        if unsure:
            yield (
                f"{fleet}: in {len(unsure)} of {total} loads and tiers the weights carry no more than "
                f"round-robin, or not surely more: {_told(unsure, 'vs_rr')}."
            )
        if worse:
            yield (
                f"{fleet}: in {len(worse)} of {total} they carry less than the better of round-robin and "
                f"least-request, and the interval does not reach it: {_told(worse, 'vs_plain')}."
            )
        best = [each["vs_rr"]["value"] for each in known if each.get("arm") == "oracle"]
        little = [value for value in best if value < 1 + LITTLE]
        if little:
            yield (
                f"{fleet}: there is little to gain in {len(little)} of {len(best)} loads and tiers, where "
                f"perfect knowledge of all engines carries under {1 + LITTLE:.2f} times round-robin's rate."
            )


def _told(lines: Sequence[dict[str, Any]], name: str) -> str:
    """Each load and tier with its ratio, or, of many, their range and the loads."""
    values = [each[name]["value"] for each in lines]
    if len(lines) <= NAMED:
        named = zip(lines, values, strict=True)
        return ", ".join(f"{each['load']} ({each['tier']}) {value:.2f}x" for each, value in named)
    loads = ", ".join(dict.fromkeys(str(each["load"]) for each in lines))
    return f"{min(values):.2f}x to {max(values):.2f}x, in {loads}"


def _surely_above(line: dict[str, Any]) -> bool:
    """Of a single repetition, which has no interval, the value alone is looked at."""
    ratio = line["vs_rr"]
    return bool(ratio["value"] > 1 and (line.get("apart_from_rr") or ratio["low"] is None))


def _surely_below(line: dict[str, Any]) -> bool:
    """Whether the better of the plain arms is out of the interval's reach; a single repetition has none."""
    ratio = line.get("vs_plain") or {"value": None}
    return ratio["value"] is not None and (ratio["high"] or ratio["value"]) < 1


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


def _latencies(results: Sequence[Result]) -> Iterator[str]:
    """Scenarios at one rate, below saturation, where P95 TTFT is no better than a plain gateway's."""
    for scenario in ("calibration", *FLEETS, "burst"):
        for mode in ("live", "sim"):
            result = newest(results, scenario, mode)
            ours = result.figure("ttft_p95_ms.weights") if result is not None else None
            if result is None or ours is None:
                continue
            theirs = {arm: result.figure(f"ttft_p95_ms.{arm}") for arm in ("rr", "lr")}
            plain = {arm: value for arm, value in theirs.items() if value}
            best = min(plain, key=lambda arm: plain[arm], default="")
            if best and ours / plain[best] > 1 - ALIKE:
                yield (
                    f"{scenario} ({mode}, {result.rps:.3g} RPS): P95 TTFT with weights is "
                    f"{_how(ours / plain[best])} that of {best}."
                )


def _reroutes(results: Sequence[Result]) -> Iterator[str]:
    """Faults after which requests wait no shorter than with a plain gateway that retries."""
    for kind in ("kill", *FAULTS):
        for mode in ("live", "sim"):
            result = newest(results, "failover", mode, kind)
            ours = result.figure("after_fault_p99_ms.weights") if result is not None else None
            if result is None or ours is None:
                continue
            for arm in ("rr", "rr_retries", "lr", "lr_retries"):
                theirs = result.figure(f"after_fault_p99_ms.{arm}")
                if theirs and ours / theirs > 1 - ALIKE:
                    yield (
                        f"failover, {kind} ({mode}): P99 to a first token of requests sent after it is "
                        f"{_how(ours / theirs)} that of {arm}."
                    )


def _how(ratio: float) -> str:
    return "as much as" if abs(ratio - 1) <= ALIKE else f"{ratio:.2f} times"


def _saturation(results: Sequence[Result]) -> Iterator[str]:
    for mode in ("live", "sim"):
        result = newest(results, "saturation", mode)
        if result is None:
            continue
        ours, theirs = result.figure("ttft_p99_ms.weights"), result.figure("ttft_p99_ms.rr")
        if ours is not None and theirs:
            told = _how(ours / theirs)
            yield (
                f"saturation ({mode}): above what any arm can carry, P99 TTFT with weights is {told} "
                "round-robin's; placing does not make capacity."
            )


def _bursts(results: Sequence[Result]) -> Iterator[str]:
    for mode in ("live", "sim"):
        result = newest(results, "burst", mode)
        bursts = result.figure("bursts.weights") if result is not None else None
        if result is None or not bursts:
            continue
        seen = result.figure("reactions_seen.weights") or 0.0
        if seen < bursts:
            yield (
                f"bursts ({mode}): weights stood still in {bursts - seen:g} of {bursts:g}; on equal cells "
                "there is nobody to send a burst to rather than to all in turn."
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
