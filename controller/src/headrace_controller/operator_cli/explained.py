"""An explanation in words: the arithmetic from a cell's figures to its weight, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace_controller.operator_cli.show import figure
from headrace_controller.operator_cli.tables import Part, Table, text


def explanation(found: dict[str, Any]) -> Iterator[Part]:
    """One cell as seen from one gateway."""
    yield text(f"{found['cell_id']} as seen from {found['gateway']}", "bold")
    yield _signals(found)
    yield from (*_pressure(found), *_weights(found))


def _signals(found: dict[str, Any]) -> Table:
    table = Table(
        ("signal", "value", "range", "normalised", "share", "contribution", "age"),
        right=("value", "normalised", "share", "contribution", "age"),
        wrap=("normalised",),
    )
    for each in found["signals"]:
        normalised = figure(each["normalised"], "{:.4f}")
        if each["filled"] is not None:
            normalised = f"{each['filled']:.4f} (filled in)"
        table.add_row(
            each["name"],
            figure(each["raw"]),
            f"{each['low']:g} to {each['high']:g}",
            normalised,
            f"{each['weight']:.4f}",
            f"{each['contribution']:.4f}",
            figure(each["age_s"], "{:.1f} s"),
        )
    return table


def _pressure(found: dict[str, Any]) -> Iterator[str]:
    smooth, error = found["smoothing"], found["error"]
    quorum = "a quorum" if found["quorum"] else "no quorum of signals"
    yield f"mean of contributions: {_six(smooth['mean'])} ({quorum})"
    yield f"smoothed: {_smoothed(smooth)}"
    yield f"settled: {_settled(smooth)}"
    yield f"base: {_six(smooth['base'])}{_decayed(smooth)}"
    yield (
        f"errors: {figure(error['estimate'], '{:.4f}')} of about {error['samples']:.0f} requests "
        f"(by the {error['source']}), others {figure(error['others'], '{:.4f}')}, excess "
        f"{figure(error['excess'], '{:.4f}')} -> {_six(error['normalised'])}"
    )
    for term in found["early"]:
        if term["chart"] > 0 or term["alert"]:
            alert = " (alert)" if term["alert"] else ""
            yield f"early warning {term['kind']}: {term['chart']:.2f} of its limit{alert}"
    yield (
        f"pressure = min(1, 1 - (1 - {_six(smooth['base'])}) x (1 - {_six(error['normalised'])})"
        f" + {_six(found['early_added'])}) = {_six(found['pressure'])}"
    )


def _six(value: float | None) -> str:
    return figure(value, "{:.6f}")


def _smoothed(smooth: dict[str, Any]) -> str:
    if smooth["jumped"]:
        return (
            f"{_six(smooth['smoothed'])}, the mean as it is: there is nothing to smooth it with, or it jumped"
        )
    before, aim = _six(smooth["before"]), _six(smooth["aim"])
    return f"{_six(smooth['smoothed'])} = {before} + {_six(smooth['step'])} x ({aim} - {before})"


def _settled(smooth: dict[str, Any]) -> str:
    if smooth["taken"]:
        return f"{_six(smooth['settled'])}, the smoothed one: it is further away than luck explains"
    if smooth["shifted"]:
        return f"{_six(smooth['settled'])}, the mean of seconds: it is further away than luck explains"
    before = _six(smooth["settled_before"])
    return (
        f"{_six(smooth['settled'])} = {before} + {_six(smooth['gain'])} x ({_six(smooth['mean'])} - {before})"
    )


def _decayed(smooth: dict[str, Any]) -> str:
    if smooth["settled"] is None:
        return ", the median of its pool" if smooth["median"] is not None else ", the middle of the scale"
    if not smooth["decayed"]:
        return ""
    settled, median = _six(smooth["settled"]), _six(smooth["median"])
    return f" = {settled} + {_six(smooth['decayed'])} x ({median} - {settled})"


def _weights(found: dict[str, Any]) -> Iterator[str]:
    for term in found["weights"]:
        if term["weight"] is None:
            yield f"{term['model']}: no weight: {term['decision']}"
            continue
        yield f"{term['model']}: weight {term['weight']} ({_decision(term)})"
        yield f"  target {term['target']} = {_origin(term)}"
        if term["would_be"] is not None:
            yield f"  without shadow it would be {term['would_be']}"


def _decision(term: dict[str, Any]) -> str:
    before = "it had none" if term["before"] is None else f"it was {term['before']}"
    if term["decision"] == "limited":
        return f"limited; {before}, and one push makes {term['least']} to {term['most']} of it"
    if term["decision"] == "override":
        return f"an operator set {term['override']}; {before}"
    pushed = f", pushed for: {term['reason']}" if term["reason"] else ""
    return f"{term['decision']}; {before}{pushed}"


def _capacity(term: dict[str, Any]) -> str:
    """The speed, and what is left of it."""
    known = "" if term["speed_error"] is None else f" (measured to {term['speed_error']:.1%})"
    relief = f"relief {_six(term['relief'])} (load {_six(term['measured'])}, usual {_six(term['usual'])})"
    return f"speed {_six(term['speed'])}{known} x ({relief} x health {_six(term['health'])})"


def _reach(term: dict[str, Any]) -> str:
    """What the path leaves, where it takes anything."""
    if term["reach"] in (None, 1.0):
        return ""
    return f" x reach {_six(term['reach'])} (its path costs {figure(term['excess_ms'], '{:.1f}')} ms more)"


def _origin(term: dict[str, Any]) -> str:
    room, best, power = _six(term["room"]), _six(term["best"]), f"^ {term['sharpness']:g}"
    whole = f"max(1, round({term['max_weight']} x room {room} / best {best})); room = "
    if term["speed"] is not None:
        return f"{whole}{_capacity(term)} {power} x ramp {term['ramp']:g}{_reach(term)}"
    if term["log_weight"] is None:
        return f"{whole}headroom {_six(term['headroom'])} {power} x ramp {term['ramp']:g}{_reach(term)}"
    return (
        f"{whole}exp(log-weight {term['log_weight']:.6f}) x ramp {term['ramp']:g} x health "
        f"{_six(term['health'])} {power}; last step {figure(term['step'], '{:+.6f}')}: measured "
        f"{_six(term['measured'])}, aim {_six(term['aim'])}"
    )
