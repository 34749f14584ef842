"""The report's pictures, from what results there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headrace_lab.plots import bars, curves
from headrace_lab.plots.bars import Bar, Group
from headrace_lab.plots.curves import Curve
from headrace_lab.report.further import FAULTS
from headrace_lab.report.nothing import FLEETS
from headrace_lab.report.results import Result, newest
from headrace_lab.report.rows import COLUMNS, side_by_side

MIDDLE = "middle"


def pictures(results: Sequence[Result]) -> dict[str, str]:
    """SVG by title, in the order of the page."""
    leak = "Long prompts leaked to a cell that must refuse them"
    made = [
        *(_matrix(results, fleet) for fleet in FLEETS),
        _tails(results),
        _by_arm(results, "capability", "leak", leak, 100, "%"),
        *(
            _by_arm(results, "failover", "reroute_p99_ms", f"Reroute P99 after {words}", 1, "ms", kind)
            for kind, words in {"kill": "SIGKILL of an engine", **FAULTS}.items()
        ),
        *(_beside(results, mode) for mode in ("live", "sim")),
        _networks(results),
        _lead(results),
        _validation(results),
    ]
    return {title: svg for each in made if each is not None for title, svg in (each,)}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _matrix(results: Sequence[Result], fleet: str) -> tuple[str, str] | None:
    result = newest(results, f"matrix/{fleet}", "sim")
    lines = [each for each in result.data.get("lines", []) if each["tier"] == MIDDLE] if result else []
    if not lines:
        return None
    arms = list(dict.fromkeys(each["arm"] for each in lines))
    groups = []
    for load in dict.fromkeys(each["load"] for each in lines):
        at = {each["arm"]: each["vs_rr"] for each in lines if each["load"] == load}
        groups.append(Group(load, [_bar(at.get(arm)) for arm in arms]))
    title = f"Sustainable RPS on {fleet}, middle SLO tier, as a ratio to round-robin (sim)"
    return title, bars.draw(title, "ratio to rr", arms, groups, mark=1.0)


def _bar(interval: dict[str, Any] | None) -> Bar:
    if interval is None:
        return Bar(math.nan)
    return Bar(_number(interval["value"]), _number(interval["low"]), _number(interval["high"]))


def _tails(results: Sequence[Result]) -> tuple[str, str] | None:
    result = newest(results, "matrix/homogeneous", "sim")
    tails = result.data.get("tails", []) if result else []
    if not tails:
        return None
    arms = [arm for arm in dict.fromkeys(each["arm"] for each in tails) if arm not in ("rr", "lr")]
    groups = []
    for load in dict.fromkeys(each["load"] for each in tails):
        at = {each["arm"]: each["vs_plain"] for each in tails if each["load"] == load}
        groups.append(Group(load, [_bar(at.get(arm)) for arm in arms]))
    title = "P99 TTFT below saturation on homogeneous, as a ratio to the better of rr and lr (sim)"
    return title, bars.draw(title, "below 1 = faster", arms, groups, mark=1.0)


def _by_arm(
    results: Sequence[Result], scenario: str, figure: str, title: str, scale: float, unit: str, kind: str = ""
) -> tuple[str, str] | None:
    """One bar an arm; a group for each way that it was measured."""
    groups, arms = [], []
    measured = [(mode, newest(results, scenario, mode, kind)) for mode in ("live", "sim")]
    prefix = f"{figure}."
    for _, result in measured:
        if result is not None:
            arms += [name.removeprefix(prefix) for name in result.figures if name.startswith(prefix)]
    arms = list(dict.fromkeys(arms))
    for mode, result in measured:
        if result is not None and arms:
            values = [result.figure(prefix + arm) for arm in arms]
            told = ", ".join(part for part in (mode, _rate(result), result.size) if part)
            groups.append(Group(told, [Bar(math.nan if v is None else v * scale) for v in values]))
    return (title, bars.draw(title, unit, arms, groups)) if groups else None


def _beside(results: Sequence[Result], mode: str) -> tuple[str, str] | None:
    """P95 TTFT of every fleet that was run at one rate, whatever the load."""
    fleets = [result for result, _ in side_by_side(results) if result.mode == mode and result.whole]
    arms = [arm for arm in COLUMNS if any(result.figure(f"ttft_p95_ms.{arm}") for result in fleets)]
    groups = [
        Group(
            f"{result.scenario}, {result.load}, {_rate(result)}",
            [Bar(_number(result.figure(f"ttft_p95_ms.{arm}"))) for arm in arms],
        )
        for result in fleets
    ]
    title = f"P95 TTFT of arms side by side at one rate ({mode})"
    return (title, bars.draw(title, "ms", arms, groups)) if groups else None


def _rate(result: Result) -> str:
    return f"{result.rps:.3g} RPS" if result.rps else ""


def _networks(results: Sequence[Result]) -> tuple[str, str] | None:
    """P95 TTFT by condition, live if there is any."""
    result = newest(results, "jitter", "live") or newest(results, "jitter", "sim")
    if result is None:
        return None
    named = [name.split(".") for name in result.figures if name.startswith("ttft_p95_ms.")]
    pairs = [(each[1], each[2]) for each in named if len(each) == 3]
    arms = list(dict.fromkeys(arm for arm, _ in pairs))
    groups = [
        Group(condition, [Bar(_number(result.figure(f"ttft_p95_ms.{arm}.{condition}"))) for arm in arms])
        for condition in dict.fromkeys(condition for _, condition in pairs)
    ]
    title = f"P95 TTFT under five networks ({result.mode})"
    return (title, bars.draw(title, "ms", arms, groups)) if groups else None


def _lead(results: Sequence[Result]) -> tuple[str, str] | None:
    result = newest(results, "lead-time", "sim")
    prefix = "lead_s_mean.thermal."
    points = sorted(
        (float(name.removeprefix(prefix).removesuffix("s")), value)
        for name, value in (result.figures if result else {}).items()
        if name.startswith(prefix)
    )
    if len(points) < 2:
        return None
    title = "Lead of GPU telemetry over the SLO's breach, thermal stress (sim)"
    x, y = [at for at, _ in points], [value for _, value in points]
    return title, curves.draw(title, "thermal time constant, s", x, [Curve("mean lead, s", y)])


def _validation(results: Sequence[Result]) -> tuple[str, str] | None:
    result = newest(results, "validate", "live and sim")
    groups = []
    for each in result.data.get("comparisons", []) if result else []:
        side = each["sides"]["p95"]
        simulated = Bar(_number(side["sim"]), _number(side["sim_low"]), _number(side["sim_high"]))
        groups.append(Group(f"{each['scenario']}, {each['arm']}", [Bar(_number(side["live"])), simulated]))
    title = "P95 TTFT live and in simulation"
    return (title, bars.draw(title, "ms", ["live", "sim"], groups)) if groups else None
