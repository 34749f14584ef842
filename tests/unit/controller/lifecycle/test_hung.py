"""Engines that are said to hang: one is believed, most of a fleet at once are not."""

from __future__ import annotations

import pytest

from headrace_controller.lifecycle import CellState, EventKind
from headrace_controller.settings import LifecycleSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.inventory.builders import HUNG, SERVING, beat, hello, telemetry
from tests.unit.controller.lifecycle.site import Site, serving

READY, FAILED = CellState.READY, CellState.FAILED
NINE = tuple("abcdefghi")


def hang(site: Site, *cells: str) -> None:
    for cell in cells:
        site.event(cell, pb.CELL_EVENT_KIND_ENGINE_HUNG, cause="no answer for 2 s")


def states(site: Site) -> str:
    return "".join("R" if site.state(cell) is READY else "F" for cell in NINE)


def say(site: Site, word: dict[str, int], seconds: float) -> None:
    """Let time pass, with a beat of every node twice a second and a tick in between."""
    for _ in range(round(seconds / 0.25)):
        for cell in NINE:
            site.beat(cell, state=word.get(cell, SERVING))
        site.tick(0.25)


def test_one_engine_that_hangs_fails_at_once() -> None:
    site = serving(*NINE)
    hang(site, "a")
    assert states(site) == "FRRRRRRRR"
    assert not site.book.tick(site.now).alarm


def test_most_of_a_fleet_hanging_at_once_keeps_its_weights_under_the_alarm() -> None:
    site = serving(*NINE)
    hang(site, *NINE)
    assert states(site) == "FFFFRRRRR", "no more than the share"
    assert site.book.tick(site.now).alarm
    last = site.book.life("i").history[-1]
    assert last.event is EventKind.HUNG_WITHHELD
    assert last.cause == "too many engines hang at once; no answer for 2 s"


def test_the_rest_is_not_worn_away_while_they_hang() -> None:
    site = serving(*NINE)
    hang(site, *NINE)
    say(site, dict.fromkeys(NINE, HUNG), 10.0)
    assert states(site) == "FFFFRRRRR"
    assert len(site.book.life("i").history) == len(site.book.life("e").history), (
        "noted once, not at each tick"
    )


def test_when_most_have_recovered_those_that_still_hang_are_failed() -> None:
    site = serving(*NINE)
    hang(site, *NINE)
    say(site, dict.fromkeys("i", HUNG), 5.0)
    assert states(site) == "RRRRRRRRF"
    assert not site.book.tick(site.now).alarm
    assert not site.fleet.doubted.any()


def test_an_engine_that_is_known_to_be_dead_is_no_matter_of_doubt() -> None:
    site = serving(*NINE)
    hang(site, *NINE)
    site.event("i", pb.CELL_EVENT_KIND_ENGINE_DOWN, cause="connection refused")
    assert site.state("i") is FAILED
    assert not site.fleet.doubted[site.fleet.row("i")]


def test_one_host_whose_engines_all_hang_is_one_failure() -> None:
    site = Site()
    site.book.registered(site.fleet.register("big", "s", hello(*NINE[:8]), site.now), site.now)
    site.hello("i")
    site.fleet.apply("big", telemetry(*(beat(cell) for cell in NINE[:8])), site.now)
    site.beat("i")
    site.tick()
    site.fleet.apply("big", telemetry(*(beat(cell, state=HUNG) for cell in NINE[:8])), site.now)
    site.tick()
    assert states(site) == "FFFFFFFFR"


@pytest.mark.parametrize("cells", [("a",), ("a", "b")])
def test_in_a_fleet_of_one_or_two_the_agents_word_decides(cells: tuple[str, ...]) -> None:
    site = serving(*cells)
    hang(site, *cells)
    assert all(site.state(cell) is FAILED for cell in cells)


def test_engines_that_hang_one_after_another_are_no_surge() -> None:
    site = serving(*NINE)
    word: dict[str, int] = {}
    for cell in NINE[:7]:
        word[cell] = HUNG
        say(site, word, 3.0)
    assert states(site) == "FFFFFFFRR"


def test_another_share_is_in_force_from_the_next_one_on() -> None:
    site = serving(*NINE)
    site.book.use(LifecycleSettings(self_preservation_share=1.0))
    hang(site, *NINE)
    assert states(site) == "FFFFFFFFF"
