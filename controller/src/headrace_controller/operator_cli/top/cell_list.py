"""The list of cells on the interactive screen: draws only the lines in sight, so a thousand cost no more
than ten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from headrace_controller.operator_cli.tables import Words
from headrace_controller.operator_cli.top.columns import Column, Layout, layout, site_words
from headrace_controller.operator_cli.top.rows import Row, SiteLine

HEAD = Style(bold=True, underline=True)
SITE = Style(bold=True)
CURSOR = Style(reverse=True)
OLD = Style(dim=True)


class CellList(ScrollView, can_focus=True):
    """Lines of sites and cells under a head that stays. The cursor stands on a cell, and follows it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown,space", "page(1)", "page down", show=False),
        Binding("home,g", "end(0)", "first", show=False),
        Binding("end,G", "end(-1)", "last", show=False),
        Binding("enter", "open", "detail", show=False),
    ]

    class Opened(Message):
        """A cell's detail is wanted."""

        def __init__(self, cell: str) -> None:
            super().__init__()
            self.cell = cell

    class Moved(Message):
        """The cursor stands elsewhere."""

    class SortBy(Message):
        """A column's name was clicked."""

        def __init__(self, column: Column) -> None:
            super().__init__()
            self.column = column

    def __init__(self, unicode: bool) -> None:
        super().__init__()
        self._unicode = unicode
        self._lines: list[SiteLine | Row] = []
        self._layout = Layout((), unicode)
        self._key, self._old = "", False
        self.cell = ""
        """The id of the cell under the cursor, "" where there is none."""

    def show(self, lines: Sequence[SiteLine | Row], key: str) -> None:
        """Show other lines, sorted by `key`."""
        self._lines, self._key = list(lines), key
        if self._at() is None:
            self.cell = next((each.id for each in self._lines if isinstance(each, Row)), "")
        self._arrange()
        self._keep_in_sight()

    def mark_old(self, old: bool) -> None:
        """Show the lines as of another time, or of now."""
        if old != self._old:
            self._old = old
            self.refresh()

    def row(self) -> Row | None:
        """The cell under the cursor."""
        at = self._at()
        found = None if at is None else self._lines[at]
        return found if isinstance(found, Row) else None

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y == 0:
            return self._strip(self._layout.head(self._key), HEAD, width)
        at = y - 1 + round(self.scroll_offset.y)
        if at >= len(self._lines):
            return Strip.blank(width)
        line = self._lines[at]
        if isinstance(line, SiteLine):
            return self._strip([Words(site_words(line))], SITE, width)
        return self._strip(self._layout.line(line), CURSOR if line.id == self.cell else Style.null(), width)

    def on_resize(self, _: events.Resize) -> None:
        self._arrange()
        self._keep_in_sight()

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            column = self._layout.at(event.x)
            if column is not None:
                self.post_message(self.SortBy(column))
            return
        at = event.y - 1 + round(self.scroll_offset.y)
        if at < len(self._lines):
            self._go_to(at, -1)

    def action_move(self, by: int) -> None:
        """Go up or down."""
        at = self._at()
        self._go_to(0 if at is None else at + by, by)

    def action_page(self, by: int) -> None:
        """Go a screen up or down."""
        self.action_move(by * max(1, self.size.height - 2))

    def action_end(self, at: int) -> None:
        """Go to the first line (0) or the last (-1)."""
        self._go_to(at % len(self._lines) if self._lines else 0, 1 if at == 0 else -1)

    def action_open(self) -> None:
        """Ask for the detail of the cell under the cursor."""
        if self.cell:
            self.post_message(self.Opened(self.cell))

    def _go_to(self, at: int, step: int) -> None:
        """Put the cursor on the cell at a line, or on the next in the direction of `step`, or, where
        there is none, on the last in the other one."""
        cells = [i for i, line in enumerate(self._lines) if isinstance(line, Row)]
        if not cells:
            return
        onwards = [i for i in cells if (i >= at if step > 0 else i <= at)]
        chosen = (min(onwards) if step > 0 else max(onwards)) if onwards else cells[-1 if step > 0 else 0]
        line = self._lines[chosen]
        assert isinstance(line, Row)
        self.cell = line.id
        self._keep_in_sight()
        self.refresh()
        self.post_message(self.Moved())

    def _at(self) -> int | None:
        """The line under the cursor."""
        for at, line in enumerate(self._lines):
            if isinstance(line, Row) and line.id == self.cell:
                return at
        return None

    def _arrange(self) -> None:
        rows = [line for line in self._lines if isinstance(line, Row)]
        width = self.size.width or 80
        grouped = len(rows) < len(self._lines)
        self._layout = layout(rows, width, self._unicode, grouped)
        self.virtual_size = Size(width, len(self._lines) + 1)
        self.refresh()

    def _keep_in_sight(self) -> None:
        """Scroll as far as the cursor's line needs, and to the first one with its site's."""
        at = self._at()
        room = max(1, self.size.height - 1)
        if at is None:
            return
        top = round(self.scroll_offset.y)
        if at < top or (at == 1 and top == 1):
            top = at if at > 1 else 0
        elif at >= top + room:
            top = at - room + 1
        self.scroll_to(y=top, animate=False, force=True)

    def _strip(self, pieces: Sequence[Words], over: Style, width: int) -> Strip:
        segments = []
        for piece in pieces:
            own = Style.null() if self._old else Style.parse(piece.style)
            segments.append(Segment(piece.words, own + over + (OLD if self._old else Style.null())))
        return Strip(segments).adjust_cell_length(width, over if over is CURSOR else Style.null())
