"""One cell on the interactive screen: its figures, why its weight is what it is, and its story."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from headrace_controller.operator_cli.cell_parts import cell_parts
from headrace_controller.operator_cli.explained import explanation
from headrace_controller.operator_cli.tables import Part, lines, text
from headrace_controller.operator_cli.terminal import Terminal, clean
from headrace_controller.operator_cli.top.source import SourceError, Story

HELP = "esc back   d drain   u undrain   g next gateway   up down scroll   q quit"


class Detail(Screen[None]):
    """Shows the newest story that it was given."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,left", "close", "back"),
        Binding("g", "gateway", "next gateway"),
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown,space", "scroll(15)", show=False),
        Binding("pageup", "scroll(-15)", show=False),
    ]

    def __init__(self, cell: str, colour: bool) -> None:
        super().__init__()
        self.cell = cell
        self._colour = colour
        self._story: Story | None = None
        self._gateway = 0

    def compose(self) -> ComposeResult:
        yield Static(f"{self.cell}: asking the controller", id="state", markup=False)
        with VerticalScroll(id="body"):
            yield Static("", id="story", markup=False)
        yield Static("", id="message", markup=False)
        yield Static(HELP, id="help", markup=False)

    def tell(self, found: Story | SourceError, stale: str) -> None:
        """Take a story in, or why there is none; `stale` says how old the figures are, "" = of now."""
        if isinstance(found, Story):
            self._story = found
        self.mark_old(stale or ("" if isinstance(found, Story) else clean(f"no answer: {found}")))
        self._draw()

    def mark_old(self, stale: str) -> None:
        """Say that the figures are old, or, with "", that they are of now."""
        state = self.query_one("#state", Static)
        state.set_class(bool(stale), "stale")
        state.update(stale or self.cell)

    def action_close(self) -> None:
        """Back to the list."""
        self.app.pop_screen()

    def action_gateway(self) -> None:
        """Explain as seen from the next gateway."""
        self._gateway += 1
        self._draw()

    def action_scroll(self, by: int) -> None:
        """Scroll by so many lines."""
        self.query_one("#body", VerticalScroll).scroll_relative(y=by, animate=False)

    def on_resize(self, _: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        if self._story is None:
            return
        width = max(40, self.size.width - 2)
        to = Terminal(width=width, colour=self._colour)
        try:
            made = list(lines(self._parts(self._story), to))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            made = [f"this controller's answer cannot be shown ({error!r}); is it of this version?"]
        self.query_one("#story", Static).update(Text.from_ansi("\n".join(made)))

    def _parts(self, story: Story) -> Iterator[Part]:
        yield from cell_parts(story.detail, tuple(self._explained(story.explanations)))

    def _explained(self, found: list[dict[str, Any]]) -> Iterator[Part]:
        if not found:
            return
        at = self._gateway % len(found)
        if len(found) > 1:
            yield text(f"gateway {at + 1} of {len(found)}", "dim")
        yield from explanation(found[at])
