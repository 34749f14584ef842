"""Tables and lines: whole in a pipe, folded on a terminal, and never driving it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.operator_cli.show import cell_table, site_table
from headrace_controller.operator_cli.tables import Table, Words, cut, lines, text, width_of
from headrace_controller.operator_cli.terminal import Terminal
from tests.support import fleet_pages as pages

PIPE = Terminal()
NARROW = Terminal(width=80)
CAUSE = "the engine said that its page cannot be read and would not say why " * 3


def of_cells() -> Table:
    """A table that is far wider than 80 columns."""
    cells = [pages.cell("c1", cause=CAUSE, fallback="nvml"), pages.failed("a-cell-with-a-long-name-12")]
    return cell_table(pages.page(*cells)["cells"])


def test_a_line_of_a_pipe_is_whole() -> None:
    _, first, second = lines([of_cells()], PIPE)
    assert CAUSE.strip() in first
    assert second.split()[:2] == ["berlin", "a-cell-with-a-long-name-12"]


def test_at_80_columns_nothing_is_lost_and_nothing_is_wider() -> None:
    made = list(lines([of_cells()], NARROW))
    assert max(map(len, made)) <= 80
    assert "a-cell-with-a-long-name-12" in "\n".join(made), "words are folded, ids are not"
    assert "heard" not in made[0], "what can be spared is"
    words = " ".join(" ".join(made).split())
    for word in ("nvml", "page", "cannot", "refused"):
        assert word in words


def test_at_80_columns_moments_are_short_and_words_stay_whole() -> None:
    at = "2026-11-30T16:22:00.400+00:00"
    names = ("at", "cell", "from", "to", "event", "cause")
    table = Table(names, wrap=("event", "cause"), moments=("at",))
    table.add_row(at, "berlin-1", "", "LOADING", "registered", "named by berlin-node-1")
    table.add_row(at, "berlin-1", "LOADING", "READY", "engine serving", "engine serving")
    assert at in "\n".join(lines([table], PIPE)), "a pipe has whole moments"
    assert at in "\n".join(lines([table], Terminal(width=120))), "so has a terminal with room"
    made = list(lines([table], NARROW))
    assert max(map(len, made)) <= 80
    assert "2026-11-30 16:22:00Z" in made[1]
    for word in ("registered", "LOADING", "serving", "berlin-node-1"):
        assert word in "\n".join(made), word


def test_figures_stand_under_each_other() -> None:
    table = Table(("name", "count"), right=("count",))
    table.add_row("a", "5")
    table.add_row("bc", "1234")
    assert list(lines([table], PIPE)) == ["name  count", "a         5", "bc     1234"]


def test_a_table_without_a_head_or_rows_shows_what_it_has() -> None:
    bare = Table(("", ""), head=False)
    assert list(lines([bare], PIPE)) == []
    bare.add_row("node", "n1")
    assert list(lines([bare], PIPE)) == ["node  n1"]
    assert list(lines([site_table([])], PIPE)) == ["site  cells  ready  other states  marks"]


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="1 cells under 2 names"):
        Table(("a", "b")).add_row("x")


def test_colour_is_only_where_it_is_wanted_and_does_not_move_columns() -> None:
    plain = list(lines([of_cells()], PIPE))
    coloured = "\n".join(lines([of_cells()], Terminal(colour=True)))
    assert "\x1b[31mFAILED\x1b[0m" in coloured
    for code in ("1", "31", "32", "0"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert [line.rstrip() for line in coloured.splitlines()] == plain


def test_what_the_fleet_says_drives_no_terminal() -> None:
    hostile = "\x1b]0;title\x07\nnext\x9b2J"
    table = Table(("a",))
    table.add_row(hostile)
    for made in (lines([table], Terminal(colour=True)), lines([hostile, text(hostile)], NARROW)):
        joined = "".join(made).replace("\x1b[1m", "").replace("\x1b[0m", "")
        assert joined.isprintable()
        assert "next" in joined


def test_wide_signs_take_two_columns() -> None:
    assert width_of("日本a") == 5
    assert (cut("日本a", 3), cut("abc", 2)) == ("日", "ab")
    table = Table(("city", "n"))
    table.add_row("日本", "1")
    table.add_row("ab", "2")
    assert list(lines([table], PIPE)) == ["city  n", "日本  1", "ab    2"]


SIGNS = st.characters(exclude_categories=("C", "Z", "M"))


@given(
    st.lists(st.text(SIGNS, min_size=1, max_size=60), min_size=1, max_size=4),
    st.integers(min_value=40, max_value=120),
)
def test_folding_loses_no_sign_and_keeps_to_the_width(cells: list[str], width: int) -> None:
    table = Table([f"n{i}" for i in range(len(cells))], wrap=("n0",))
    table.add_row(*cells)
    _, *made = lines([table], Terminal(width=width))
    assert sorted("".join("".join(made).split())) == sorted("".join(text(each).words for each in cells))
    assert all(width_of(line) <= width for line in made)


def test_a_long_line_is_folded_at_words() -> None:
    made = list(lines([Words("one two three " * 10)], Terminal(width=40)))
    assert all(len(line) <= 40 for line in made)
    assert " ".join(made).split() == ["one", "two", "three"] * 10
