"""Groups of bars as an SVG, with intervals where there are any."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle
from typing import Final

COLOURS: Final = ("#8d99a6", "#e0a030", "#1565c0", "#2e7d32", "#6a1b9a", "#b23b3b", "#00838f")
ARM_COLOURS: Final = {
    "rr": "#8d99a6",
    "rr_retries": "#b8c0c8",
    "lr": "#e0a030",
    "lr_retries": "#ecc98a",
    "v2": "#90caf9",
    "v3": "#42a5f5",
    "weights": "#1565c0",
    "headrace": "#2e7d32",
    "oracle": "#6a1b9a",
    "vllm-router": "#b23b3b",
    "vllm-router-p2c": "#d98080",
    "vllm-router-rr": "#ebbcbc",
    "sglang-router": "#00838f",
    "sglang-router-p2c": "#5fb3bb",
    "sglang-router-rr": "#abd8dc",
}
WIDTH: Final = 860
HEIGHT: Final = 260
LEFT: Final = 52
RIGHT: Final = 12
TOP: Final = 62
BOTTOM: Final = 46
TICKS: Final = 5
LEGEND_ROW: Final = 18
LEGEND_FREE: Final = 110
ROOM: Final = 26
"""Width of a bar that its value fits over."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; NaN = nothing was measured. `low` and `high` are its interval, equal to the value where
    there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, slots=True)
class Group:
    """Bars that stand together: one for each series, in the order of the series."""

    name: str
    bars: Sequence[Bar]


def draw(title: str, unit: str, series: Sequence[str], groups: Sequence[Group], mark: float = 0.0) -> str:
    """The whole picture; `mark` is a height to draw a dashed line at, 0 = none. The y axis begins at 0."""
    heights = [
        top for group in groups for bar in group.bars for top in (bar.value, bar.high) if math.isfinite(top)
    ]
    most = max([*heights, mark, 1e-9]) * 1.08
    legend, rows = _legend(series)
    lower = (rows - 1) * LEGEND_ROW
    height = HEIGHT + TOP + BOTTOM + lower
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(title, quote=True)}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>',
        *legend,
        f'<g transform="translate(0 {lower})">',
        *_axis(most, unit),
    ]
    for number, group in enumerate(groups):
        parts += _group(group, number, len(groups), _colours(series), most)
    if mark:
        y = _y(mark, most)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#444" stroke-dasharray="5 4"/>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _y(value: float, most: float) -> float:
    return TOP + HEIGHT * (1 - value / most)


def _legend(series: Sequence[str]) -> tuple[list[str], int]:
    """Names with their colours, in as many rows as they need; the unit's place at the right stays free."""
    parts, x, row = [], float(LEFT), 0
    for colour, name in zip(_colours(series), series, strict=True):
        wide = 34 + 6.6 * len(name)
        if x + wide > WIDTH - LEGEND_FREE and x > LEFT:
            x, row = float(LEFT), row + 1
        y = 32 + row * LEGEND_ROW
        parts.append(f'<rect x="{x:.0f}" y="{y}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 16:.0f}" y="{y + 11}">{escape(name)}</text>')
        x += wide
    return parts, row + 1


def _axis(most: float, unit: str) -> list[str]:
    parts = [
        f'<path d="M{LEFT} {TOP}V{TOP + HEIGHT}H{WIDTH - RIGHT}" fill="none" stroke="#888"/>',
        f'<text x="{WIDTH - RIGHT}" y="43" text-anchor="end" fill="#444">{escape(unit)}</text>',
    ]
    step = _step(most / TICKS)
    for number in range(int(most / step) + 1):
        value = step * number
        text = f"{value:,.0f}" if step >= 1 else f"{value:.2f}"
        parts.append(
            f'<text x="{LEFT - 6}" y="{_y(value, most) + 4:.1f}" text-anchor="end" fill="#444">{text}</text>'
        )
    return parts


def _step(least: float) -> float:
    """The round number at or above `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * each for each in (1.0, 2.0, 2.5, 5.0, 10.0) if power * each >= least * (1 - 1e-9))


def _colours(series: Sequence[str]) -> list[str]:
    """An arm has one colour in all pictures; other series take what is left in turn."""
    taken = {ARM_COLOURS.get(name) for name in series}
    left = cycle([colour for colour in COLOURS if colour not in taken] or COLOURS)
    return [ARM_COLOURS.get(name) or next(left) for name in series]


def _group(group: Group, number: int, groups: int, colours: Sequence[str], most: float) -> list[str]:
    span = (WIDTH - RIGHT - LEFT) / groups
    wide = span * 0.8 / max(1, len(colours))
    left = LEFT + span * (number + 0.1)
    # Long names of neighbours stand on two lines.
    middle, under = LEFT + span * (number + 0.5), TOP + HEIGHT + 16 + 14 * (number % 2 if groups > 4 else 0)
    parts = [f'<text x="{middle:.1f}" y="{under}" text-anchor="middle">{escape(group.name)}</text>']
    for place, bar in enumerate(group.bars):
        if math.isfinite(bar.value):
            parts += _bar(bar, escape(group.name), left + place * wide, wide, colours[place], most)
    return parts


def _bar(bar: Bar, name: str, x: float, wide: float, colour: str, most: float) -> list[str]:
    """One bar with its interval, and its value where there is room; below 0 the value alone."""
    top = _y(max(0.0, bar.value), most)
    centre, highest = x + wide * 0.46, top
    parts = [
        f'<rect x="{x:.1f}" y="{top:.1f}" width="{wide * 0.92:.1f}" '
        f'height="{TOP + HEIGHT - top:.1f}" fill="{colour}"><title>{name}: {bar.value:.3g}</title></rect>'
    ]
    if math.isfinite(bar.low) and math.isfinite(bar.high) and bar.high > bar.low:
        low, highest = _y(max(0.0, bar.low), most), _y(max(0.0, bar.high), most)
        parts.append(f'<path d="M{centre:.1f} {low:.1f}V{highest:.1f}" stroke="#222"/>')
    if wide >= ROOM:
        parts.append(
            f'<text x="{centre:.1f}" y="{highest - 3:.1f}" text-anchor="middle" font-size="10" fill="#444">'
            f"{_short(bar.value)}</text>"
        )
    return parts


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
