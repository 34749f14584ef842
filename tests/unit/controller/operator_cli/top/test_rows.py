"""Sorting, filtering and shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.operator_cli.top.rows import KEYS, Look, Row, look, matching, ordered
from tests.support import fleet_pages as pages

CELLS = (
    pages.cell("b1", "berlin", pressure=0.9, weights={"gw-1": 10, "gw-2": 30}),
    pages.cell("b2", "berlin", pressure=0.1, weights={"gw-1": 90, "gw-2": 90}, fallback="nvml"),
    pages.failed("a1", "amsterdam"),
    pages.cell("a2", "amsterdam", pressure=0.5, models=("qwen",), weights={"gw-1": 7, "gw-2": 7}),
)


def made() -> Look:
    return look(pages.status(*CELLS), pages.page(*CELLS)["cells"])


def ids(rows: list[Row]) -> list[str]:
    return [row.id for row in rows]


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("site", ["a1", "a2", "b1", "b2"]),
        ("trouble", ["a1", "b1", "a2", "b2"]),
        ("cell", ["a1", "a2", "b1", "b2"]),
        ("pressure", ["b1", "a2", "b2", "a1"]),
        ("weight", ["b2", "b1", "a2", "a1"]),
    ],
)
def test_cells_are_sorted_figures_most_first_and_unknown_ones_last(key: str, wanted: list[str]) -> None:
    assert ids(ordered(made().rows, key)) == wanted


def test_backwards_leaves_unknown_figures_last() -> None:
    assert ids(ordered(made().rows, "pressure", backwards=True)) == ["b2", "a2", "b1", "a1"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("backwards", [False, True])
def test_no_order_loses_a_cell(key: str, backwards: bool) -> None:
    assert sorted(ids(ordered(made().rows, key, backwards))) == ["a1", "a2", "b1", "b2"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("", ["b1", "b2", "a1", "a2"]),
        ("berlin", ["b1", "b2"]),
        ("FAILED", ["a1"]),
        ("refused", ["a1"]),
        ("nvml", ["b2"]),
        ("site:amster ready", ["a2"]),
        ("model:qwen", ["a2"]),
        ("state:failed", ["a1"]),
        ("!ready", ["a1"]),
        ("berlin !nvml", ["b1"]),
        ("nothing-like-it", []),
        ("x:y", []),
        ("!", ["b1", "b2", "a1", "a2"]),
    ],
)
def test_words_find_cells(wanted: str, found: list[str]) -> None:
    assert ids(matching(made().rows, wanted)) == found


def test_a_share_is_the_part_of_the_pools_weight_over_the_gateways() -> None:
    shares = {row.id: row.share for row in made().rows}
    assert shares["b1"] == pytest.approx((10 / 100 + 30 / 120) / 2)
    assert shares["a2"] == pytest.approx(1.0)
    assert shares["a1"] is None


@given(st.lists(st.integers(min_value=0, max_value=100), min_size=1, max_size=8))
def test_shares_of_a_pool_are_one_together(weights: list[int]) -> None:
    cells = [pages.cell(f"c{i}", weights={"gw-1": weight}) for i, weight in enumerate(weights)]
    found = look(pages.status(*cells), pages.page(*cells)["cells"])
    shares = [row.share for row in found.rows if row.share is not None]
    assert sum(shares) == pytest.approx(1.0) if any(weights) else not shares


def test_the_headline_counts_and_alarms_name_what_needs_a_look() -> None:
    assert made().headline == "region eu-1: weights are published; 3 of 4 cells READY"
    assert made().alarms == ()
    changed = pages.status(
        *CELLS,
        self_preservation=True,
        shadow=True,
        frozen=True,
        gateways=(
            pages.gateway(connected=False),
            pages.gateway(id="gw-2", in_force=False, last_nack="bad\x1b"),
        ),
    )
    assert look(changed, []).alarms == (
        "self-preservation: weights hold",
        "shadow: no weight is pushed",
        "freeze: weights are held",
        "gateway gw-1 is not connected",
        "gateway gw-2 refuses what it is sent: bad\ufffd",
    )
