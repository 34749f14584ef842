"""Which heartbeats are new, and what a tail says of a cell."""

from __future__ import annotations

from typing import Any

from headrace_controller.operator_cli.tailing import Watch
from tests.support import fleet_pages as pages

WALL = 1_700_000_000.0


def seen(watch: Watch, now: float, *cells: Any) -> list[tuple[str, str]]:
    """The cells of one look's lines, each with its note."""
    found = [pages.plain(cell) for cell in cells]
    return [(beat.cell["id"], beat.note) for beat in watch.look(found, now, WALL + now)]


def test_a_cell_stands_on_a_line_each_time_it_was_heard() -> None:
    watch = Watch()
    assert seen(watch, 10.0, pages.cell("c1", heartbeat_age_s=0.1)) == [("c1", "")]
    assert seen(watch, 10.5, pages.cell("c1", heartbeat_age_s=0.6)) == [], "the same heartbeat"
    assert seen(watch, 11.0, pages.cell("c1", heartbeat_age_s=0.2)) == [("c1", "")]


def test_a_cell_that_falls_silent_is_said_once_and_again_when_it_is_heard() -> None:
    watch = Watch()
    seen(watch, 10.0, pages.cell("c1", heartbeat_age_s=0.1))
    assert seen(watch, 12.0, pages.cell("c1", heartbeat_age_s=2.1)) == [("c1", "silent for 2.1 s")]
    assert seen(watch, 13.0, pages.cell("c1", heartbeat_age_s=3.1)) == []
    assert seen(watch, 14.0, pages.cell("c1", heartbeat_age_s=0.1)) == [("c1", "heard again")]


def test_a_change_of_state_is_said_also_of_a_cell_that_is_not_heard() -> None:
    watch = Watch()
    seen(watch, 10.0, pages.cell("c1"))
    ((name, note),) = seen(watch, 10.1, pages.failed("c1"))
    assert (name, note) == ("c1", "READY -> FAILED: engine down: refused")
    assert seen(watch, 10.2, pages.failed("c1")) == []


def test_a_cell_that_was_away_begins_anew() -> None:
    watch = Watch()
    seen(watch, 10.0, pages.cell("c1"))
    assert seen(watch, 11.0) == []
    assert seen(watch, 12.0, pages.failed("c1")) == [], "nothing is known of it before"


def test_a_line_has_the_figures_and_a_dash_for_what_is_absent() -> None:
    (beat,) = Watch().look([pages.plain(pages.cell("c1"))], 10.0, WALL)
    line = beat.words().words
    for words in ("berlin/c1", "READY", "pressure 0.250", "weight 70 70", "ttft 420ms", "queue 3", "kv 20%"):
        assert words in line
    assert line.startswith("22:13:19.690"), "the moment of the heartbeat, not of the look"
    bare = pages.cell("c2", signals={}, pressure=None, weights={})
    (beat,) = Watch().look([pages.plain(bare)], 10.0, WALL)
    assert "pressure -  weight -  ttft -  queue -  kv -  gpu -  rtt -" in beat.words().words
    assert beat.as_json()["cell"]["id"] == "c2"
