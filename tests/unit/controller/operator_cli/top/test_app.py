"""The interactive screen, through the toolkit's own pilot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input, Static

from headrace_controller.control.view import CellView
from headrace_controller.operator_cli.top.app import CAUSE, Top
from headrace_controller.operator_cli.top.cell_list import CellList
from headrace_controller.operator_cli.top.detail import Detail
from headrace_controller.operator_cli.top.dialogs import Confirm, Keys
from headrace_controller.operator_cli.top.messages import Told
from headrace_controller.operator_cli.top.rows import look
from headrace_controller.operator_cli.top.source import SourceError
from tests.support import fleet_pages as pages
from tests.support.clock import FakeClock
from tests.unit.controller.control.region import Region
from tests.unit.controller.operator_cli.test_explained import loaded
from tests.unit.controller.operator_cli.top.fake_source import FakeSource

CELLS = (
    pages.cell("b1", pressure=0.9),
    pages.cell("b2", pressure=0.1, fallback="nvml"),
    pages.failed("a1", "amsterdam"),
    pages.cell("a2", "amsterdam", pressure=0.5, models=("qwen",)),
)


class Screen:
    """The program on a screen of 80x24, and what stands there."""

    def __init__(self, app: Top, pilot: Pilot[None], source: FakeSource, clock: FakeClock) -> None:
        self.app, self.pilot, self.source, self.clock = app, pilot, source, clock

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def look(self) -> None:
        """The controller is looked at, well or badly."""
        try:
            self.app.post_message(Told(self.source.look()))
        except SourceError as error:
            self.app.post_message(Told(error))
        await self.pilot.pause()

    @property
    def lines(self) -> list[str]:
        """What a person sees, line by line."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def cells(self) -> list[str]:
        """The ids on the list, in order."""
        known = {cell.id for cell in self.source.cells}
        listed = [line.split() for line in self.lines if " at " not in line]
        return [words[0] for words in listed if words and words[0] in known]

    def said(self, name: str) -> str:
        return str(self.app.screen.query_one(f"#{name}", Static).render())


@asynccontextmanager
async def screen(
    cells: Sequence[CellView] = CELLS, size: tuple[int, int] = (80, 24), **options: Any
) -> AsyncIterator[Screen]:
    source, clock = FakeSource(cells), FakeClock()
    app = Top(source, clock, run=lambda _, work: work(), live=False, **options)
    async with app.run_test(size=size) as pilot:
        made = Screen(app, pilot, source, clock)
        await made.look()
        yield made


async def test_cells_stand_by_site_what_is_not_ready_first() -> None:
    async with screen() as seen:
        assert seen.cells == ["a1", "a2", "b1", "b2"]
        assert seen.lines[0] == "region eu-1: weights are published; 3 of 4 cells READY"
        assert "amsterdam: 1 of 2 READY, 1 FAILED" in seen.lines
        assert "berlin: 2 of 2 READY" in seen.lines
        (line,) = (line for line in seen.lines if line.startswith("b1"))
        for words in ("READY", "0.90", "70", "420ms", "20%", "310ms"):
            assert words in line
        assert seen.said("about").startswith("a1 at amsterdam: FAILED for")


async def test_sort_goes_through_the_columns_and_back() -> None:
    async with screen() as seen:
        await seen.press("s")
        assert (seen.cells, seen.said("message")) == (["a1", "b1", "a2", "b2"], "sorted by trouble")
        await seen.press("s")
        await seen.press("r")
        assert (seen.cells, seen.said("message")) == (["b2", "b1", "a2", "a1"], "sorted by cell, backwards")
        await seen.press("S", "S")
        assert seen.cells == ["a1", "a2", "b1", "b2"]


async def test_a_click_on_a_columns_name_sorts_by_it() -> None:
    async with screen() as seen:
        at = seen.lines[1].index("pressure")
        await seen.pilot.click(CellList, offset=(at, 0))
        await seen.pilot.pause()
        assert (seen.cells, seen.said("message")) == (["b1", "a2", "b2", "a1"], "sorted by pressure")
        await seen.pilot.click(CellList, offset=(at, 0))
        await seen.pilot.pause()
        assert seen.cells == ["b2", "a2", "b1", "a1"]


async def test_the_cursor_follows_its_cell_through_sorting_and_new_looks() -> None:
    async with screen() as seen:
        await seen.press("down", "down")
        assert seen.said("about").startswith("b1 at berlin")
        await seen.press("s")
        seen.source.cells.insert(0, pages.failed("a0", "amsterdam"))
        await seen.look()
        assert seen.said("about").startswith("b1 at berlin")
        await seen.press("end")
        assert seen.said("about").startswith("b2 at berlin")
        await seen.press("home", "up")
        assert seen.said("about").startswith("a0 at amsterdam")


async def test_search_narrows_while_it_is_typed_and_escape_shows_all() -> None:
    async with screen() as seen:
        await seen.press("slash", *"nvml")
        assert seen.cells == ["b2"]
        await seen.press("enter")
        assert isinstance(seen.app.focused, CellList)
        assert seen.app.query_one("#search", Input).display, "it stays in sight that not all is shown"
        await seen.press("escape")
        assert seen.cells == ["a1", "a2", "b1", "b2"]
        await seen.press("slash", *"zzz")
        assert seen.cells == []
        assert "no cell has these words" in seen.said("about")


async def test_letters_of_a_search_are_no_commands() -> None:
    async with screen() as seen:
        await seen.press("slash", *"dusqr", "slash", "question_mark")
        assert seen.app.query_one("#search", Input).value == "dusqr/?"
        assert len(seen.app.screen_stack) == 1


async def test_detail_shows_facts_signals_why_and_the_story() -> None:
    region = loaded()
    async with screen(size=(120, 100)) as seen:
        seen.source.explanations = explained(region)
        await seen.press("down", "enter")
        await seen.pilot.pause()
        assert isinstance(seen.app.screen, Detail)
        for words in (
            *("amsterdam-node", "qwen (8192)", "rack=7", "named by its node", "gateway 1 of 2"),
            *("queue_depth", "jitter_ms", "normalised", "pressure = min(1", "target"),
        ):
            assert words in seen.text, words
        await seen.press("g")
        assert "gateway 2 of 2" in seen.text
        await seen.press("escape")
        assert seen.cells == ["a1", "a2", "b1", "b2"]


def explained(region: Region) -> list[dict[str, object]]:
    """What a real control loop says of a cell that works, at both gateways."""
    return [pages.plain(region.loop.explain("c1", gateway)) for gateway in ("gw-1", "gw-2")]


async def test_detail_of_a_cell_that_was_not_scored_has_its_signals() -> None:
    async with screen(size=(80, 60)) as seen:
        await seen.press("enter")
        await seen.pilot.pause()
        assert "kv_fill" in seen.text
        assert "engine down: refused" in seen.text


async def test_drain_asks_first_and_enter_does_nothing() -> None:
    async with screen() as seen:
        await seen.press("down", "d")
        assert isinstance(seen.app.screen, Confirm)
        assert "Drain a2 at amsterdam? It is READY" in seen.text
        assert "4 in flight finish" in " ".join(seen.text.replace("|", "").split())
        assert "last READY cell of qwen: requests for it will get 503" in seen.text
        await seen.press("enter")
        assert seen.source.acts == []
        assert seen.said("message") == "a2: nothing done"
        for no in ("n", "escape"):
            await seen.press("d", no)
            assert seen.source.acts == []


async def test_drain_and_undrain_are_done_when_confirmed_and_the_answer_is_said() -> None:
    async with screen() as seen:
        await seen.press("end", "d", "y")
        assert seen.source.acts == [("drain", "b2", CAUSE)]
        await seen.pilot.pause()
        assert seen.said("message") == "b2: DRAINING"
        await seen.press("u", "y")
        await seen.pilot.pause()
        assert seen.source.acts[-1] == ("undrain", "b2", CAUSE)
        assert seen.said("message") == "b2: READY"


async def test_the_cause_can_be_written_and_its_letters_confirm_nothing() -> None:
    async with screen() as seen:
        await seen.press("end", "d", "shift+tab")
        cause = seen.app.screen.query_one("#cause", Input)
        assert cause.has_focus
        cause.value = ""
        await seen.press(*"any", "enter")
        assert seen.source.acts == []
        await seen.press("enter")
        assert seen.source.acts == [("drain", "b2", "any")]


async def test_a_drain_in_the_detail_is_of_that_cell() -> None:
    async with screen() as seen:
        await seen.press("end", "enter", "d", "y")
        await seen.pilot.pause()
        assert seen.source.acts == [("drain", "b2", CAUSE)]
        assert seen.said("message") == "b2: DRAINING"


async def test_a_drain_that_is_refused_is_said() -> None:
    async with screen() as seen:
        await seen.press("d")
        seen.source.fails = "the token 'grafana' may only look"
        await seen.press("y")
        await seen.pilot.pause()
        assert seen.said("message") == "drain a1 failed: the token 'grafana' may only look"


async def test_old_figures_are_called_stale_and_new_ones_are_not() -> None:
    async with screen() as seen:
        state = seen.app.query_one("#state", Static)
        assert not state.has_class("stale")
        seen.source.fails = "connection refused"
        seen.clock.advance(2.0)
        await seen.look()
        assert seen.lines[0].startswith("STALE: figures of 2 s ago; connection refused; trying again")
        assert state.has_class("stale")
        assert seen.cells == ["a1", "a2", "b1", "b2"], "what was known stays in sight"
        seen.source.fails = ""
        await seen.look()
        assert seen.lines[0].startswith("region eu-1")
        assert not state.has_class("stale")


async def test_a_controller_that_hangs_is_stale_without_any_answer() -> None:
    async with screen() as seen:
        seen.clock.advance(3.5)
        seen.app.tick()
        await seen.pilot.pause()
        assert "STALE: figures of 4 s ago; the controller does not answer in time" in seen.lines[0]


async def test_before_the_first_answer_it_says_what_it_waits_for() -> None:
    async with screen([]) as seen:
        assert seen.said("about") == "no cells"
    source = FakeSource()
    app = Top(source, FakeClock(), run=lambda _, work: work(), live=False)
    async with app.run_test(size=(80, 24)) as pilot:
        app.post_message(Told(SourceError("connection refused")))
        await pilot.pause()
        said = str(app.query_one("#state", Static).render())
        assert said == "no figures yet: connection refused; trying again"


async def test_a_detail_is_stale_too() -> None:
    async with screen() as seen:
        await seen.press("enter")
        await seen.pilot.pause()
        seen.source.fails = "connection refused"
        await seen.look()
        await seen.pilot.pause()
        assert seen.said("state").startswith("STALE")
        assert "engine down: refused" in seen.text


async def test_a_detail_is_stale_too_when_nothing_answers_at_all() -> None:
    async with screen() as seen:
        await seen.press("enter")
        await seen.pilot.pause()
        assert seen.said("state") == "a1"
        seen.clock.advance(10.0)
        seen.app.tick()
        assert seen.said("state").startswith("STALE: figures of 10 s ago")


async def test_what_a_controller_says_drives_no_terminal() -> None:
    async with screen() as seen:
        seen.source.fails = "\x1b[2Jgone"
        await seen.look()
        assert "\ufffd[2Jgone" in seen.lines[0]
        await seen.press("d", "y")
        await seen.pilot.pause()
        assert seen.said("message") == "drain a1 failed: \ufffd[2Jgone"


async def test_a_resize_to_80x24_keeps_every_figure_and_the_cursor() -> None:
    async with screen(pages.many(300), size=(200, 50)) as seen:
        await seen.press("end")
        last = seen.said("about").split(" ")[0]
        wide = next(line for line in seen.lines if line.startswith(last))
        assert "engine serves" in wide
        await seen.pilot.resize_terminal(80, 24)
        await seen.pilot.pause()
        assert len(seen.lines) == 24
        assert all(len(line) <= 80 for line in seen.lines)
        narrow = next(line for line in seen.lines if line.startswith(last))
        for words in ("READY", "70", "420ms", "20%", "310ms"):
            assert words in narrow
        assert seen.lines[-1].startswith("? keys")


async def test_a_thousand_cells_are_walked_through_by_pages() -> None:
    async with screen(pages.many(1000)) as seen:
        for _ in range(3):
            await seen.press("pagedown")
        chosen = seen.said("about").split(" ")[0]
        assert chosen in seen.cells
        await seen.press("home")
        assert seen.lines[2].startswith("site-0: 124 of 125 READY")


async def test_the_keys_are_explained_and_fit() -> None:
    async with screen() as seen:
        await seen.press("question_mark")
        assert isinstance(seen.app.screen, Keys)
        assert "how long ago its agent was heard" in seen.text
        assert "take its drain back" in seen.text
        await seen.press("q")
        assert len(seen.app.screen_stack) == 1, "q leaves the page of keys, not the program"


async def test_only_a_site_that_is_wanted_and_words_from_the_command_line() -> None:
    async with screen(site="berlin", search="nvml", key="pressure") as seen:
        assert seen.cells == ["b2"]
        assert seen.app.query_one("#search", Input).display


async def test_alarms_stand_at_the_top() -> None:
    async with screen() as seen:
        status = pages.status(*CELLS, self_preservation=True)
        seen.app.post_message(Told(look(status, pages.page(*CELLS)["cells"])))
        await seen.pilot.pause()
        assert seen.lines[1] == "self-preservation: weights hold"


async def test_ascii_terminals_get_ascii() -> None:
    async with screen(unicode=False) as seen:
        assert seen.text.isascii()
        assert "####" in seen.text
