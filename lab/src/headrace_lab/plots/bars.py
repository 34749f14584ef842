"""Groups of bars as an SVG, with intervals where there are any."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

COLOURS: Final = ("#8d99a6", "#e0a030", "#1565c0", "#2e7d32", "#6a1b9a", "#b23b3b", "#00838f")
WIDTH: Final = 860
HEIGHT: Final = 260
LEFT: Final = 52
RIGHT: Final = 12
TOP: Final = 62
BOTTOM: Final = 46
TICKS: Final = 5


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
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + TOP + BOTTOM}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(title, quote=True)}">',
        f'<rect width="{WIDTH}" height="{HEIGHT + TOP + BOTTOM}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>',
        *_legend(series),
        *_axis(most, unit),
    ]
    for number, group in enumerate(groups):
        parts += _group(group, number, len(groups), len(series), most)
    if mark:
        y = _y(mark, most)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#444" stroke-dasharray="5 4"/>')
    return "\n".join([*parts, "</svg>", ""])


def _y(value: float, most: float) -> float:
    return TOP + HEIGHT * (1 - value / most)


def _legend(series: Sequence[str]) -> list[str]:
    parts, x = [], float(LEFT)
    for number, name in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{x:.0f}" y="32" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 16:.0f}" y="43">{escape(name)}</text>')
        x += 34 + 7.2 * len(name)
    return parts


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


def _group(group: Group, number: int, groups: int, series: int, most: float) -> list[str]:
    span = (WIDTH - RIGHT - LEFT) / groups
    wide = span * 0.8 / max(1, series)
    left = LEFT + span * (number + 0.1)
    # Long names of neighbours stand on two lines.
    middle, under = LEFT + span * (number + 0.5), TOP + HEIGHT + 16 + 14 * (number % 2 if groups > 4 else 0)
    parts = [f'<text x="{middle:.1f}" y="{under}" text-anchor="middle">{escape(group.name)}</text>']
    for place, bar in enumerate(group.bars):
        if not math.isfinite(bar.value):
            continue
        x, top = left + place * wide, _y(bar.value, most)
        colour = COLOURS[place % len(COLOURS)]
        parts.append(
            f'<rect x="{x:.1f}" y="{top:.1f}" width="{wide * 0.92:.1f}" '
            f'height="{TOP + HEIGHT - top:.1f}" fill="{colour}"><title>{escape(group.name)}: '
            f"{bar.value:.3g}</title></rect>"
        )
        if math.isfinite(bar.low) and math.isfinite(bar.high) and bar.high > bar.low:
            centre = x + wide * 0.46
            parts.append(
                f'<path d="M{centre:.1f} {_y(bar.low, most):.1f}V{_y(bar.high, most):.1f}" stroke="#222"/>'
            )
    return parts
