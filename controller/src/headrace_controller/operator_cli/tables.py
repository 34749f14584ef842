"""Tables and lines as text: aligned columns without frames, which people read and `awk` splits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from unicodedata import combining, east_asian_width

from headrace_controller.operator_cli.terminal import Terminal, clean

GAP: Final = "  "
LEAST: Final = 8
"""No column is wrapped narrower than this many signs."""
LONG: Final = 16
"""A word of at most so many signs is not broken as long as there is another way."""


_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)\.\d+\+00:00")


class Words(NamedTuple):
    """Text and its style: a key of terminal.STYLES, or "" for none."""

    words: str
    style: str = ""


def text(value: Any, style: str = "") -> Words:
    """Any value as text that is safe to show."""
    return Words(clean(value), style)


@dataclass
class Table:
    """Rows of cells under names. Columns in `right` are figures.

    Where the terminal is narrow those in `moments`, which are times as the API gives them, lose their
    milliseconds, then those in `wrap` go on over several lines, then those in `spare` are left out, one by
    one, and only then is any other wrapped.
    """

    names: Sequence[str]
    right: Sequence[str] = ()
    wrap: Sequence[str] = ()
    spare: Sequence[str] = ()
    moments: Sequence[str] = ()
    head: bool = True
    rows: list[list[Words]] = field(default_factory=list)

    def add_row(self, *cells: str | Words) -> None:
        """Add one line. Raises ValueError where it has another number of cells than there are names."""
        if len(cells) != len(self.names):
            raise ValueError(f"{len(cells)} cells under {len(self.names)} names")
        self.rows.append([each if isinstance(each, Words) else text(each) for each in cells])


Part = Table | Words | str


def lines(parts: Iterable[Part], to: Terminal) -> Iterator[str]:
    """What is shown, line by line."""
    for part in parts:
        if isinstance(part, Table):
            yield from _table(part, to)
        else:
            words = part if isinstance(part, Words) else text(part)
            yield from (to.styled(each, words.style) for each in _wrapped(words.words, to.width or 0))


def _table(table: Table, to: Terminal) -> Iterator[str]:
    head = [[Words(name, "bold") for name in table.names]] if table.head else []
    grid = [*head, *table.rows]
    if not grid:
        return
    shown = list(range(len(table.names)))
    widths = _widths(grid)
    if to.width is not None:
        if not _fits(widths, to.width) and table.moments:
            grid = [[*_shortened(table, row)] for row in grid]
            widths = _widths(grid)
        least = [_longest_word(row[i].words for row in grid) for i in shown]
        spare = [table.names.index(name) for name in table.spare]
        while not _narrow(table, widths, shown, to.width, least) and spare:
            shown.remove(spare.pop(0))
        _squeeze(widths, shown, shown, to.width, [LEAST] * len(widths))
    right = [table.names[i] in table.right for i in shown]
    for row in grid:
        yield from _row([row[i] for i in shown], [widths[i] for i in shown], right, to)


def _widths(grid: Sequence[Sequence[Words]]) -> list[int]:
    return [max(width_of(row[i].words) for row in grid) for i in range(len(grid[0]))]


def _fits(widths: Sequence[int], limit: int) -> bool:
    return sum(widths) + len(GAP) * (len(widths) - 1) <= limit


def _shortened(table: Table, row: Sequence[Words]) -> Iterator[Words]:
    """2026-11-30T16:22:00.400+00:00 as 2026-11-30 16:22:00Z."""
    for name, each in zip(table.names, row, strict=True):
        match = _MOMENT.fullmatch(each.words) if name in table.moments else None
        yield Words(f"{match[1]} {match[2]}Z", each.style) if match else each


def _longest_word(column: Iterable[str]) -> int:
    """How narrow a column may be wrapped: no word of it is broken, unless it is a long one."""
    lengths = [width_of(word) for words in column for word in words.split()]
    return max([LEAST, *(each for each in lengths if each <= LONG)])


def _narrow(table: Table, widths: list[int], shown: Sequence[int], limit: int, least: Sequence[int]) -> bool:
    """Take from the columns that may wrap until all fit; whether they do."""
    return _squeeze(widths, shown, [i for i in shown if table.names[i] in table.wrap], limit, least)


def _squeeze(
    widths: list[int], shown: Sequence[int], chosen: Sequence[int], limit: int, least: Sequence[int]
) -> bool:
    """Take from the widest of the chosen columns, again and again; whether all that are shown fit."""
    over = sum(widths[i] for i in shown) + len(GAP) * (len(shown) - 1) - limit
    while over > 0:
        widest = max((i for i in chosen if widths[i] > least[i]), key=lambda i: widths[i], default=None)
        if widest is None:
            return False
        widths[widest] -= 1
        over -= 1
    return True


def _row(row: Sequence[Words], widths: Sequence[int], right: Sequence[bool], to: Terminal) -> Iterator[str]:
    folded = [_wrapped(each.words, width) for each, width in zip(row, widths, strict=True)]
    for line in range(max(map(len, folded))):
        made = ""
        for at, (cell, pieces) in enumerate(zip(row, folded, strict=True)):
            piece = pieces[line] if line < len(pieces) else ""
            pad = " " * (widths[at] - width_of(piece))
            shown = to.styled(piece, cell.style if piece else "")
            made += (GAP if at else "") + (pad + shown if right[at] else shown + pad)
        yield made.rstrip()


def _wrapped(words: str, width: int) -> list[str]:
    """The text in pieces of at most `width` columns, 0 = one piece; broken between words if it can be."""
    pieces, rest = [], words
    while width and width_of(rest) > width:
        fits = len(cut(rest, width))
        space = rest.rfind(" ", 0, fits + 1)
        at = space if space > 0 else max(1, fits)
        pieces.append(rest[:at].rstrip())
        rest = rest[at:].lstrip()
    return [*pieces, rest]


def width_of(words: str) -> int:
    """The columns that a text takes."""
    return len(words) if words.isascii() else sum(map(_sign_width, words))


def cut(words: str, width: int) -> str:
    """As much of a text as fits into so many columns."""
    if words.isascii():
        return words[:width]
    taken = 0
    for at, sign in enumerate(words):
        taken += _sign_width(sign)
        if taken > width:
            return words[:at]
    return words


def _sign_width(sign: str) -> int:
    if combining(sign):
        return 0
    return 2 if east_asian_width(sign) in "WF" else 1
