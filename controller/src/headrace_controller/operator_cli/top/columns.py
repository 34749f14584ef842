"""Rows as lines of a given width: which columns there is room for, and how each is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace_controller.operator_cli.show import STATE_STYLE, figure
from headrace_controller.operator_cli.tables import Words, cut, width_of
from headrace_controller.operator_cli.top.rows import Row, SiteLine

BAR: Final = 4
"""Signs of the pressure bar."""
EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Column:
    """One column, as wide as its words need between `least` and `most`. `key` sorts by it (rows.KEYS).

    Where there is no room for all, those with the greatest `rank` go first, 0 never; `grows` = takes
    what room the others leave.
    """

    name: str
    key: str
    least: int
    most: int
    write: Callable[[Row, bool], str]
    rank: int = 0
    right: bool = True
    grows: bool = False
    style: Callable[[Row], str] = lambda row: ""


def bar(value: float | None, unicode: bool) -> str:
    """A pressure as a bar and a figure."""
    if value is None:
        return " " * BAR + "    -"
    part = min(1.0, max(0.0, value))
    if unicode:
        eighths = round(part * BAR * 8)
        whole, rest = divmod(eighths, 8)
        drawn = "█" * whole + (EIGHTHS[rest] if rest else "")
    else:
        drawn = "#" * round(part * BAR)
    return f"{drawn:{BAR}} {value:.2f}"


def seconds(value: float | None) -> str:
    """A time that is short or long, in at most six signs."""
    if value is None:
        return "-"
    for most, form, unit, scale in (
        (0.9995, "{:.0f}", "ms", 1e3),
        (9.995, "{:.2f}", "s", 1.0),
        (119.5, "{:.0f}", "s", 1.0),
        (7170.0, "{:.0f}", "m", 1 / 60),
        (172_000.0, "{:.0f}", "h", 1 / 3600),
    ):
        if value < most:
            return form.format(value * scale) + unit
    return f"{value / 86_400:.0f}d"


def weights(row: Row) -> str:
    """The weight, or the least and the most where gateways have different ones."""
    if not any(row.weights):
        return "-"
    least, most = min(row.weights), max(row.weights)
    return str(most) if least == most else f"{least}-{most}"


def _percent(value: float | None) -> str:
    return figure(value, "{:.0%}")


def _heat(row: Row) -> str:
    if row.pressure is None:
        return "dim"
    return "red" if row.pressure >= 0.8 else "yellow" if row.pressure >= 0.5 else "green"


def _warns(row: Row) -> str:
    return "yellow" if row.marks else ""


def _state(row: Row) -> str:
    return STATE_STYLE.get(row.state, "")


COLUMNS: Final = (
    Column("site", "site", 6, 20, lambda row, _: row.site, rank=3, right=False, grows=True),
    Column("cell", "cell", 12, 40, lambda row, _: row.id, right=False, grows=True),
    Column("state", "state", 6, 10, lambda row, _: row.state, right=False, style=_state),
    Column("!", "trouble", 1, 1, lambda row, _: "!" if row.marks else "", right=False, style=_warns),
    Column("pressure", "pressure", 9, 9, lambda row, uni: bar(row.pressure, uni), right=False, style=_heat),
    Column("weight", "weight", 6, 9, lambda row, _: weights(row)),
    Column("share", "share", 5, 6, lambda row, _: figure(row.share, "{:.1%}")),
    Column("TTFT", "ttft", 5, 5, lambda row, _: seconds(row.ttft_s)),
    Column("queue", "queue", 5, 6, lambda row, _: figure(row.queue, "{:.0f}")),
    Column("KV", "kv", 4, 4, lambda row, _: _percent(row.kv)),
    Column("GPU", "gpu", 4, 4, lambda row, _: _percent(row.gpu)),
    Column("heard", "heard", 5, 5, lambda row, _: seconds(row.heard_s)),
    Column("marks", "trouble", 12, 60, lambda row, _: row.marks, rank=2, right=False, grows=True),
    Column("cause", "state", 16, 200, lambda row, _: row.cause, rank=1, right=False, grows=True),
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that fit, each with its width; `unicode` as the terminal has it."""

    columns: tuple[tuple[Column, int], ...]
    unicode: bool = True

    def head(self, key: str = "") -> list[Words]:
        """The names; that of the column that is sorted by stands out."""
        pieces: list[Words] = []
        marked = False
        for at, (column, width) in enumerate(self.columns):
            if at:
                pieces.append(Words(" "))
            chosen = column.key == key and not marked
            marked = marked or chosen
            pieces.append(Words(_fitted(column.name, width, column.right), "reverse" if chosen else ""))
        return pieces

    def line(self, row: Row) -> list[Words]:
        """One cell: the pieces of its line, each in its style."""
        pieces: list[Words] = []
        for at, (column, width) in enumerate(self.columns):
            if at:
                pieces.append(Words(" "))
            pieces.append(
                Words(_fitted(column.write(row, self.unicode), width, column.right), column.style(row))
            )
        return pieces

    def at(self, x: int) -> Column | None:
        """The column under a place of the line."""
        begin = 0
        for column, width in self.columns:
            if begin <= x < begin + width:
                return column
            begin += width + 1
        return None


def layout(rows: Sequence[Row], width: int | None, unicode: bool = True, grouped: bool = False) -> Layout:
    """The columns for a width. Grouped rows stand under their site's line, which takes the column's place.

    Without a width (a pipe) every column is there, as wide as it takes. Those before the marks are one
    word in every line, so that `awk` can count on them.
    """
    chosen = [column for column in COLUMNS if not (grouped and column.key == "site")]
    if width is None:
        whole = [replace(each, write=_word(each), right=False) for each in chosen if each.name != "!"]
        return Layout(tuple((each, _need(each, rows, unicode)) for each in whole), unicode)
    widths = {each.name: each.least if each.grows else _wanted(each, rows, unicode) for each in chosen}
    while _sum(widths) > width and any(column.rank for column in chosen):
        last = max(chosen, key=lambda column: column.rank)
        chosen.remove(last)
        del widths[last.name]
    # An id that is cut tells nothing; a cause that is cut still does.
    for column in sorted(chosen, key=lambda column: (column.rank != 0, -column.rank)):
        if column.grows:
            room = max(0, width - _sum(widths))
            widths[column.name] += min(room, _wanted(column, rows, unicode) - column.least)
    return Layout(tuple((column, widths[column.name]) for column in chosen), unicode)


def _word(column: Column) -> Callable[[Row, bool], str]:
    """What a column says where nobody looks at it: no bar, no blank."""
    if column.name == "pressure":
        return lambda row, _: figure(row.pressure, "{:.3f}")
    return lambda row, unicode: column.write(row, unicode) or "-"


def _need(column: Column, rows: Iterable[Row], unicode: bool) -> int:
    return max([width_of(column.name), *(width_of(column.write(row, unicode)) for row in rows)])


def _wanted(column: Column, rows: Iterable[Row], unicode: bool) -> int:
    """As wide as its words, within its bounds."""
    if column.least == column.most:
        return column.least
    return min(column.most, max(column.least, _need(column, rows, unicode)))


def _sum(widths: dict[str, int]) -> int:
    """The width of a line: a blank stands between two columns."""
    return sum(widths.values()) + len(widths) - 1


def _fitted(words: str, width: int, right: bool) -> str:
    """The text in exactly so many columns; what does not fit ends in a mark."""
    if width_of(words) > width:
        words = cut(words, width - 1) + "~"
    pad = " " * (width - width_of(words))
    return pad + words if right else words + pad


def site_words(site: SiteLine) -> str:
    """One site's line."""
    said = f"{site.site}: {site.ready} of {site.cells} READY"
    said += f", {site.others}" if site.others else ""
    return said + (", cordoned" if site.cordoned else "")
