"""The tests' own reading of PromQL: what it misses would go unchecked."""

from __future__ import annotations

import pytest

from tests.support.promql import Selector, grouped, selectors


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        ("up == 0", ["up"]),
        ('up{job="a"} == 0 or absent(up{job="b"})', ["up", "up"]),
        ("resets(w[10m]) >= 6 and changes(w[10m]) - resets(w[10m]) >= 6", ["w", "w", "w"]),
        ('sum by (region, le) (rate(a_bucket{x=~"b|c{}"}[$__rate_interval])) > bool 0.5', ["a_bucket"]),
        ("a and on (instance, cell) b == 2 unless on (cell) c", ["a", "b", "c"]),
        ("m > 0 unless m offset 15m", ["m", "m"]),
        ('count_values("state", headrace_cell_state) or vector(0)', ["headrace_cell_state"]),
        ("a * on (x) group_left (site) (max by (site) (b) > bool 0)", ["a", "b"]),
        ("region_site:a:count / (r:b:rate1m > 1e-3)", ["region_site:a:count", "r:b:rate1m"]),
        ("time() - process_start_time_seconds", ["process_start_time_seconds"]),
        ('{__name__=~"a.*"}', [""]),
    ],
)
def test_names_are_found_and_nothing_else_is_taken_for_one(expr: str, names: list[str]) -> None:
    assert sorted(each.name for each in selectors(expr)) == sorted(names)


def test_matchers_and_groupings() -> None:
    expr = 'sum by (site) (a{cell!="", class=~"b|c", x="q\\"}"}) / on (site, z) d'
    one = Selector("a", (("cell", "!=", ""), ("class", "=~", "b|c"), ("x", "=", 'q\\"}')))
    assert selectors(expr) == [one, Selector("d")]
    assert one.labels == {"cell", "class", "x"}
    assert grouped(expr) == {"site", "z"}
