"""What stands over the list: a question before an act, and the keys."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

KEYS: Final = """\
up down      from cell to cell; page keys, home and end go further
enter        the cell's detail: signals, why its weight, its story
/            show only cells that have these words in their id, site,
             node, model, state, marks or cause; site:a state:failed
             node:b model:c look there alone; !word leaves out
esc          show all again
s  S         sort by the next column, by the one before; or click
r            sort the other way round
d            drain the cell: no new requests, those in flight finish
u            take its drain back
q            leave

!            something is marked: figures from a fallback, a weight that
             an operator set, a cordoned site, an early warning
share        the cell's part of its pool's weight
TTFT         P95 time to first token
heard        how long ago its agent was heard"""


class Confirm(ModalScreen[str | None]):
    """Asks before an act; gives the cause, or None for no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "yes", "yes"),
        Binding("n,escape", "no", "no"),
        Binding("left,up", "app.focus_previous", show=False),
        Binding("right,down", "app.focus_next", show=False),
    ]

    def __init__(self, question: str, word: str, cause: str) -> None:
        super().__init__()
        self._question, self._word, self._cause = question, word, cause

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(self._question, id="question", markup=False)
            yield Input(self._cause, placeholder="why", max_length=200, compact=True, id="cause")
            with Horizontal():
                yield Button("No (n)", id="no", compact=True)
                yield Button(f"{self._word} (y)", id="yes", compact=True)

    def on_mount(self) -> None:
        # What enter does is the harmless thing.
        self.query_one("#no", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.action_yes() if event.button.id == "yes" else self.action_no()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        self.query_one("#yes", Button).focus()

    def action_yes(self) -> None:
        """Do it."""
        self.dismiss(self.query_one("#cause", Input).value.strip() or self._cause)

    def action_no(self) -> None:
        """Leave it."""
        self.dismiss(None)


class Keys(ModalScreen[None]):
    """Which key does what."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "close", "close")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box"):
            yield Static(KEYS, markup=False)

    def action_close(self) -> None:
        """Back to the list."""
        self.dismiss(None)
