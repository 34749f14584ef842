"""The interactive `headrace top`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input, Static

from headrace_controller.operator_cli.top import words
from headrace_controller.operator_cli.top.cell_list import CellList
from headrace_controller.operator_cli.top.detail import Detail
from headrace_controller.operator_cli.top.dialogs import Confirm, Keys
from headrace_controller.operator_cli.top.messages import Done, Heard, Told
from headrace_controller.operator_cli.top.rows import KEYS, Look, Row, matching, ordered
from headrace_controller.operator_cli.top.source import Feed, Source, SourceError, Story, acted, in_thread
from headrace_controller.operator_cli.top.style import CSS
from headrace_shared.clock import Clock

STALE_S: Final = 3.0
"""Figures older than this, or than three intervals, are called stale."""
CAUSE: Final = "asked by the operator in headrace top"
HELP: Final = "? keys  / search  s sort  r reverse  enter detail  d drain  u undrain  q quit"

Runner = Callable[[str, Callable[[], None]], None]


class Top(App[None]):
    """The region's cells, live.

    `source` is asked in threads that `run` starts; what it answers comes back as messages. `live` False
    asks for no looks: a test gives them.
    """

    CSS = CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "quit", priority=False),
        # Before any other key is handed out: those that are typed ahead are meant for the search.
        Binding("slash", "search", "search", priority=True),
        Binding("escape", "all", "show all"),
        Binding("s", "sort(1)", "sort"),
        Binding("S", "sort(-1)", "sort back"),
        Binding("r", "reverse", "reverse"),
        Binding("d", "drain", "drain"),
        Binding("u", "undrain", "undrain"),
        Binding("question_mark", "keys", "keys"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        source: Source,
        clock: Clock,
        *,
        interval_s: float = 1.0,
        site: str | None = None,
        search: str = "",
        key: str = "site",
        unicode: bool = True,
        colour: bool = True,
        run: Runner = in_thread,
        live: bool = True,
    ) -> None:
        super().__init__(ansi_color=True)
        self._source, self._clock, self._site = source, clock, site
        self._interval_s, self._key, self._backwards = interval_s, key, False
        self._unicode, self._colour, self._in_thread, self._live = unicode, colour, run, live
        self._wanted = search
        self._look: Look | None = None
        self._looked_at = clock.now()
        self._failed = ""
        self._asking_for_story = False
        self._feed = Feed(source, interval_s, clock, lambda found: self._post(Told(found)))

    def compose(self) -> ComposeResult:
        yield Static(f"asking {self._source.url}", id="state", markup=False)
        yield CellList(self._unicode)
        yield Static("", id="about", markup=False)
        yield Input(self._wanted, placeholder="words, site:a, state:failed, !word", id="search", compact=True)
        yield Static("", id="message", markup=False)
        yield Static(HELP, id="help", markup=False)

    def on_mount(self) -> None:
        self.theme = "ansi-dark"
        self._list.focus()
        self.query_one("#search", Input).display = bool(self._wanted)
        if self._live:
            self._feed.start()
            self.set_interval(1.0, self.tick)

    def on_unmount(self) -> None:
        self._feed.stop()

    # What comes from the controller.

    def on_top_told(self, told: Told) -> None:
        """Take a look in."""
        if isinstance(told.found, Look):
            self._look, self._looked_at, self._failed = told.found, self._clock.now(), ""
        else:
            self._failed = str(told.found)
        self.tick()
        self._show()
        self._ask_for_story()

    def on_top_heard(self, heard: Heard) -> None:
        """Take a story in."""
        self._asking_for_story = False
        if isinstance(self.screen, Detail) and self.screen.cell == heard.cell:
            self.screen.tell(heard.found, self.stale())
        else:
            self._ask_for_story()

    def on_top_done(self, done: Done) -> None:
        """Say how an act went, and look at once."""
        self._say(done.said)
        self._feed.hurry()

    def tick(self) -> None:
        """Say how old the figures are; once a second, also while nothing answers."""
        stale = self.stale()
        state = self.screen_stack[0].query_one("#state", Static)
        state.set_class(bool(stale), "stale")
        self._list.mark_old(bool(stale))
        if isinstance(self.screen, Detail):
            self.screen.mark_old(stale)
        if stale or self._look is None:
            state.update(stale or f"asking {self._source.url}")
        else:
            state.update("\n".join((self._look.headline, *self._look.alarms)))

    def stale(self) -> str:
        """How old the figures are and why, "" where they are of now."""
        age = self._clock.now() - self._looked_at
        if not self._failed and age <= max(STALE_S, 3 * self._interval_s):
            return ""
        return words.stale(age if self._look is not None else None, self._failed)

    # What the operator does.

    def on_cell_list_moved(self, _: CellList.Moved) -> None:
        self._about()

    def on_cell_list_sort_by(self, chosen: CellList.SortBy) -> None:
        if chosen.column.key == self._key:
            self.action_reverse()
        else:
            self._sort_by(chosen.column.key)

    def on_cell_list_opened(self, opened: CellList.Opened) -> None:
        self.push_screen(Detail(opened.cell, self._colour))
        self.call_after_refresh(self._ask_for_story)

    def on_input_changed(self, changed: Input.Changed) -> None:
        if changed.input.id == "search":
            self._wanted = changed.value
            self._show()

    def on_input_submitted(self, submitted: Input.Submitted) -> None:
        if submitted.input.id == "search":
            self.screen.set_focus(self._list)
            submitted.input.display = bool(self._wanted.strip())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A slash that is typed into a line of text is a slash."""
        del parameters
        return action != "search" or (self._on_list and not isinstance(self.focused, Input))

    def action_search(self) -> None:
        """Ask for words to look for."""
        search = self.query_one("#search", Input)
        search.display = True
        self.screen.set_focus(search)

    def action_all(self) -> None:
        """Show all cells again."""
        if self._on_list:
            search = self.query_one("#search", Input)
            search.value = ""
            search.display = False
            self.screen.set_focus(self._list)

    def action_sort(self, by: int) -> None:
        """Sort by the next key, or the one before."""
        if self._on_list:
            keys = list(KEYS)
            self._sort_by(keys[(keys.index(self._key) + by) % len(keys)])

    def action_reverse(self) -> None:
        """Sort the other way round."""
        if self._on_list:
            self._backwards = not self._backwards
            self._show()
            self._say_order()

    def action_keys(self) -> None:
        """Show which key does what."""
        self.push_screen(Keys())

    def action_drain(self) -> None:
        """Ask, then drain."""
        row = self._chosen()
        if row is None:
            return
        rows = self._look.rows if self._look is not None else ()
        self._confirm(words.drain_question(row, rows), "Drain", row.id, self._source.drain)

    def action_undrain(self) -> None:
        """Ask, then take the drain back."""
        row = self._chosen()
        if row is not None:
            self._confirm(words.undrain_question(row), "Undrain", row.id, self._source.undrain)

    def _confirm(self, question: str, word: str, cell: str, act: Callable[[str, str], str]) -> None:
        def answered(cause: str | None) -> None:
            if cause is None:
                self._say(f"{cell}: nothing done")
                return
            self._say(f"{word.lower()} {cell}: asked")
            self._in_thread(word, lambda: self._post(Done(acted(act, cell, cause, word))))

        self.push_screen(Confirm(question, word, CAUSE), answered)

    # What is shown.

    @property
    def _list(self) -> CellList:
        return self.screen_stack[0].query_one(CellList)

    @property
    def _on_list(self) -> bool:
        return len(self.screen_stack) == 1

    def _sort_by(self, key: str) -> None:
        self._key, self._backwards = key, False
        self._show()
        self._say_order()

    def _say_order(self) -> None:
        self._say(f"sorted by {self._key}" + (", backwards" if self._backwards else ""))

    def _show(self) -> None:
        """Sort and filter anew."""
        if self._look is None or not self.is_running:
            return
        rows = [row for row in self._look.rows if self._site in (None, row.site)]
        rows = ordered(matching(rows, self._wanted), self._key, self._backwards)
        grouped = self._key == "site"
        self._list.show(words.by_site(rows, self._look.sites) if grouped else rows, self._key)
        self._about()

    def _about(self) -> None:
        """The cell under the cursor, in words."""
        row = self._list.row()
        about = self.screen_stack[0].query_one("#about", Static)
        if row is None:
            about.update("no cell has these words; esc shows all" if self._wanted else "no cells")
            return
        about.update(words.about(row))

    def _say(self, said: str) -> None:
        """One line that stays until the next."""
        for screen in self.screen_stack:
            for message in screen.query("#message").results(Static):
                message.update(said)

    def _chosen(self) -> Row | None:
        """The cell that an act is for: that of the detail, or that under the cursor."""
        if isinstance(self.screen, Detail):
            rows = self._look.rows if self._look is not None else ()
            return next((row for row in rows if row.id == self.screen.cell), None)
        return self._list.row() if self._on_list else None

    def _ask_for_story(self) -> None:
        """Ask for the story of the cell whose detail is open, one at a time."""
        screen = self.screen
        if not isinstance(screen, Detail) or self._asking_for_story:
            return
        self._asking_for_story = True
        cell = screen.cell

        def ask() -> None:
            try:
                found: Story | SourceError = self._source.story(cell)
            except SourceError as error:
                found = error
            self._post(Heard(cell, found))

        self._in_thread("story", ask)

    def _post(self, message: Message) -> None:
        """From any thread; a screen that has ended takes nothing."""
        if self.is_running:
            self.post_message(message)
