"""Bars and curves as SVG."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from headrace_lab.plots import bars, curves
from headrace_lab.plots.bars import Bar, Group
from headrace_lab.plots.curves import Curve


def heights(svg: str) -> list[float]:
    return [float(each) for each in re.findall(r'height="([\d.]+)" fill="#[0-9a-f]+"><title>', svg)]


def test_bars_are_as_high_as_their_values() -> None:
    svg = bars.draw("a <title>", "x", ["one", "two"], [Group("g", [Bar(1.0), Bar(2.0, 1.5, 2.5)])])
    ElementTree.fromstring(svg)
    first, second = heights(svg)
    assert abs(second / first - 2.0) < 0.01
    assert "a &lt;title&gt;" in svg


def test_what_was_not_measured_has_no_bar_and_no_group_moves() -> None:
    svg = bars.draw("t", "x", ["one", "two"], [Group("g", [Bar(math.nan), Bar(2.0)]), Group("h", [])])
    assert len(heights(svg)) == 1
    assert "nan" not in svg


def test_a_mark_is_drawn_where_asked_for() -> None:
    plain = bars.draw("t", "x", ["one"], [Group("g", [Bar(0.5)])])
    marked = bars.draw("t", "x", ["one"], [Group("g", [Bar(0.5)])], mark=1.0)
    assert "stroke-dasharray" in marked
    assert "stroke-dasharray" not in plain
    assert heights(marked)[0] < heights(plain)[0], "the mark is within the picture"


def test_nothing_at_all_is_still_a_picture() -> None:
    ElementTree.fromstring(bars.draw("t", "x", [], []))


def test_curves_share_their_axis() -> None:
    svg = curves.draw(
        "t & u", "x", [0.0, 1.0, 2.0], [Curve("a", [1.0, 2.0, 3.0]), Curve("b", [0.0, 0.0, 0.0])]
    )
    ElementTree.fromstring(svg)
    assert svg.count("<polyline") == 2
    assert "t &amp; u" in svg


def test_the_axis_has_round_numbers() -> None:
    svg = bars.draw("t", "x", ["one"], [Group("g", [Bar(1.62)])])
    ticks = re.findall(r'text-anchor="end" fill="#444">([\d.,]+)<', svg)
    assert ticks == ["0.00", "0.50", "1.00", "1.50"]
    large = bars.draw("t", "ms", ["one"], [Group("g", [Bar(4200.0)])])
    assert ">4,000<" in large
