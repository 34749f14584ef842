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


def test_a_value_below_nothing_is_written_and_has_no_height() -> None:
    svg = bars.draw("t", "ms", ["one", "two"], [Group("g", [Bar(-12.0), Bar(30.0)])])
    ElementTree.fromstring(svg)
    assert heights(svg)[0] == 0.0
    assert ">-12<" in svg


def test_values_stand_over_bars_where_there_is_room() -> None:
    wide = bars.draw("t", "ms", ["one"], [Group("g", [Bar(1234.0)])])
    assert ">1,234<" in wide
    crowd = [Group(f"g{n}", [Bar(1234.0)] * 5) for n in range(8)]
    assert ">1,234<" not in bars.draw("t", "ms", list("abcde"), crowd)


def test_an_arm_has_one_colour_in_all_pictures() -> None:
    def colours(series: list[str]) -> dict[str, str]:
        svg = bars.draw("t", "x", series, [Group("g", [Bar(1.0)] * len(series))])
        found = re.findall(r'fill="(#[0-9a-f]+)"><title>', svg)
        return dict(zip(series, found, strict=True))

    few, many = colours(["rr", "weights"]), colours(["lr", "weights", "other", "rr", "more"])
    assert few["weights"] == many["weights"] != few["rr"] == many["rr"]
    assert len(set(many.values())) == 5
    assert len(colours([f"s{n}" for n in range(20)])) == 20


def test_a_long_legend_goes_on_in_further_rows_and_the_bars_below_it() -> None:
    names = [f"a-router-with-policy-{n}" for n in range(9)]
    svg = bars.draw("t", "ms", names, [Group("g", [Bar(1.0)] * 9)])
    ElementTree.fromstring(svg)
    places = [(float(x), float(y)) for x, y in re.findall(r'<text x="(\d+)" y="(\d+)">a-router', svg)]
    assert len(places) == 9
    assert len({y for _, y in places}) > 1
    assert all(x + 6.6 * len(names[0]) < bars.WIDTH - 60 for x, _ in places), "the unit stands at the right"
    (shift,) = re.findall(r"translate\(0 (\d+)\)", svg)
    assert int(shift) > 0
