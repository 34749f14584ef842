"""Rows as lines of a given width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.operator_cli.tables import width_of
from headrace_controller.operator_cli.top.columns import Layout, bar, layout, seconds, weights
from headrace_controller.operator_cli.top.rows import Row, look
from tests.support import fleet_pages as pages


def rows(*cells: object) -> tuple[Row, ...]:
    return look(pages.status(), [pages.plain(cell) for cell in cells]).rows


def line(made: Layout, row: Row) -> str:
    return "".join(piece.words for piece in made.line(row))


def head(made: Layout) -> str:
    return "".join(piece.words for piece in made.head())


FLEET = rows(
    pages.cell("berlin-gpu-host-7-cell-0", weights={"gw-1": 100, "gw-2": 9}),
    pages.failed("c2"),
    pages.cell("c3", "a-site-with-a-long-name", state="TERMINATED", fallback="dcgm_fallback"),
)


def test_80_columns_have_every_figure() -> None:
    made = layout(FLEET, 80, grouped=True)
    names = head(made).split()
    assert names == [
        *("cell", "state", "!", "pressure", "weight", "share", "TTFT", "queue", "KV", "GPU", "heard")
    ]
    first, second, third = (line(made, row) for row in FLEET)
    assert "READY" in first
    for words in ("█    0.25", "9-100", "420ms", "3", "20%", "310ms"):
        assert words in first
    assert second.count("-") == 8, "what is not known is a dash, never 0"
    assert "TERMINATED !" in third


def test_a_wide_terminal_has_site_marks_and_cause_too() -> None:
    made = layout(FLEET, 200)
    assert head(made).split()[-2:] == ["marks", "cause"]
    assert line(made, FLEET[2]).startswith("a-site-with-a-long-~ c3 ")
    assert "dcgm_fallback" in line(made, FLEET[2])


@given(st.integers(min_value=40, max_value=300), st.booleans(), st.booleans())
def test_every_line_is_as_wide_as_the_head_and_fits(width: int, grouped: bool, unicode: bool) -> None:
    made = layout(FLEET, width, unicode, grouped)
    sizes = {width_of(line(made, row)) for row in FLEET} | {width_of(head(made))}
    assert len(sizes) == 1
    # Under 80 columns what must stay is wider.
    assert sizes.pop() <= max(width, 80)


def test_ascii_has_no_other_signs() -> None:
    assert all(line(layout(FLEET, 80, unicode=False), row).isascii() for row in FLEET)


def test_a_pipe_has_a_word_in_every_column() -> None:
    made = layout(FLEET, None)
    columns = len(head(made).split())
    for row in FLEET:
        assert len(line(made, row).split()) >= columns
    assert line(made, FLEET[1]).split()[:5] == ["berlin", "c2", "FAILED", "-", "-"]
    assert "█" not in "".join(line(made, row) for row in FLEET)


def test_the_column_under_a_place_is_found() -> None:
    made = layout(FLEET, 80, grouped=True)
    assert [made.at(x).key if made.at(x) else None for x in (0, 79, 500)] == ["cell", "heard", None]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("value", "unicode", "wanted"),
    [
        (0.0, True, "     0.00"),
        (0.5, True, "██   0.50"),
        (1.0, True, "████ 1.00"),
        (0.3125, True, "█▎   0.31"),
        (0.5, False, "##   0.50"),
        (7.0, False, "#### 7.00"),
        (None, True, "        -"),
    ],
)
def test_a_pressure_is_a_bar_and_a_figure(value: float | None, unicode: bool, wanted: str) -> None:
    assert bar(value, unicode) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (None, "-"),
        (0.0, "0ms"),
        (0.42, "420ms"),
        (1.5, "1.50s"),
        (42.4, "42s"),
        (600.0, "10m"),
        (7200.0, "2h"),
        (1e6, "12d"),
    ],
)
def test_a_time_takes_five_signs_at_most(value: float | None, wanted: str) -> None:
    assert seconds(value) == wanted


@given(st.floats(min_value=0, max_value=8e8))
def test_no_time_is_too_wide_for_its_column(value: float) -> None:
    assert len(seconds(value)) <= 5


def test_weights_are_one_figure_or_a_range() -> None:
    assert [weights(row) for row in FLEET] == ["9-100", "-", "70"]
