"""Curves over a common axis as an SVG, each in a panel of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 760
PANEL: Final = 120
LEFT: Final = 70
RIGHT: Final = 20
TOP: Final = 40
GAP: Final = 34


@dataclass(frozen=True, slots=True)
class Curve:
    """One panel; `values` stand over the x axis's values, its y axis starts at 0."""

    title: str
    values: Sequence[float]


def draw(title: str, x_title: str, x: Sequence[float], curves: Sequence[Curve]) -> str:
    """The whole picture."""
    height = TOP + len(curves) * (PANEL + GAP) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
    ]
    for number, curve in enumerate(curves):
        parts += _panel(curve, x, TOP + number * (PANEL + GAP))
    parts.append(f'<text x="{WIDTH / 2}" y="{height - 6}" text-anchor="middle">{escape(x_title)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(curve: Curve, x: Sequence[float], top: float) -> list[str]:
    most = max(*curve.values, 1e-9) * 1.15
    last = max(*x, 1e-9)
    bottom, right = top + PANEL, WIDTH - RIGHT
    points = " ".join(
        f"{LEFT + (right - LEFT) * at / last:.1f},{bottom - PANEL * value / most:.1f}"
        for at, value in zip(x, curve.values, strict=True)
    )
    ticks = [(0.0, "0"), (most / 2, f"{most / 2:.0f}"), (most, f"{most:.0f}")]
    found = [
        f'<text x="{LEFT}" y="{top - 4}" fill="#444">{escape(curve.title)}</text>',
        f'<path d="M{LEFT} {top}V{bottom}H{right}" fill="none" stroke="#888"/>',
        f'<polyline points="{points}" fill="none" stroke="#1565c0" stroke-width="1.5"/>',
        f'<text x="{right}" y="{bottom + 14}" text-anchor="end" fill="#444">{last:,.0f}</text>',
    ]
    for value, text in ticks:
        y = bottom - PANEL * value / most + 4
        found.append(f'<text x="{LEFT - 6}" y="{y:.1f}" text-anchor="end" fill="#444">{text}</text>')
    return found
