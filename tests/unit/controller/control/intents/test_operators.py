"""Wishes act at once, and stand again after a restart; drains among them, whichever file knows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_controller.control.intents.migrate import with_drains
from headrace_controller.control.intents.operators import Refused
from headrace_controller.control.intents.records import Actor, Kind, Wish
from headrace_controller.control.kept_fleet import KeptCell, KeptDrain, KeptFleet
from headrace_controller.lifecycle import CellState
from headrace_controller.projection import NO_INTENTS
from tests.support.clock import FakeClock
from tests.unit.controller.control.region import Region

ANNA = Actor("anna")


def serving(place: Path, clock: FakeClock | None = None) -> Region:
    """A region whose c1 serves; it remembers in `place`."""
    region = Region(f"state_dir: {place}\n", clock)
    region.connect("c1", "c2")
    region.tick()
    region.beat("c1")
    region.tick()
    return region


async def test_all_wishes_are_in_force_again_after_a_restart(tmp_path: Path) -> None:
    region = serving(tmp_path)
    operators = region.operators
    assert await operators.shadow(True, "look first", ANNA)
    assert await operators.freeze(True, "", ANNA)
    assert await operators.override("c1", 7, "canary", ANNA)
    assert await operators.cordon("berlin", True, "", ANNA)
    assert await operators.pin("m", ["berlin"], "", ANNA)
    before, standing = region.loop.intents, operators.standing()
    region.close()
    again = Region(f"state_dir: {tmp_path}\n", region.clock)
    assert again.loop.intents == before
    assert again.operators.standing() == standing
    assert ("override", "c1", 7, "canary", "anna") in {
        (each.kind, each.subject, each.weight, each.cause, each.by) for each in again.operators.standing()
    }
    again.close()


async def test_what_was_taken_back_stays_so(tmp_path: Path) -> None:
    region = serving(tmp_path)
    await region.operators.override("c1", 7, "", ANNA)
    await region.operators.shadow(True, "", ANNA)
    await region.operators.override("c1", None, "", ANNA)
    await region.operators.shadow(False, "", ANNA)
    region.close()
    again = Region(f"state_dir: {tmp_path}\n", region.clock)
    assert again.loop.intents == NO_INTENTS
    again.close()


async def test_a_drain_stands_again_before_its_cell_can_serve(tmp_path: Path) -> None:
    """Also where the kept fleet is lost: the cell is drained as soon as it is known."""
    region = serving(tmp_path)
    assert await region.operators.drain("c1", "new driver", 600, ANNA)
    region.close()
    region.clock.advance(60)
    again = Region(f"state_dir: {tmp_path}\n", region.clock)
    again.connect("c1")
    again.beat("c1")
    again.tick()
    again.tick()
    life = again.loop.book.life("c1")
    assert life.state in (CellState.DRAINING, CellState.TERMINATED)
    assert life.drain is not None
    assert (life.drain.cause, life.drain.requested_by) == ("new driver", "operator")
    again.close()


async def test_an_undrain_before_its_cell_is_seen_ends_the_drain(tmp_path: Path) -> None:
    region = serving(tmp_path)
    await region.operators.drain("c1", "", None, ANNA)
    region.close()
    again = Region(f"state_dir: {tmp_path}\n", region.clock)
    assert await again.operators.undrain("c1", "", ANNA)
    again.connect("c1")
    again.tick()
    again.beat("c1")
    again.tick()
    assert again.views.state_of("c1") == "READY"
    again.close()
    third = Region(f"state_dir: {tmp_path}\n", region.clock)
    with pytest.raises(KeyError):
        third.operators.undrain("c1", "", ANNA)
    third.close()


async def test_a_drain_that_the_lifecycle_ends_is_kept_as_ended(tmp_path: Path) -> None:
    region = serving(tmp_path)
    await region.operators.drain("c1", "", 5, ANNA)
    region.beat("c1")
    region.tick(6)
    assert region.views.state_of("c1") == "TERMINATED"
    region.tick()
    region.close()
    again = Region(f"state_dir: {tmp_path}\n", region.clock)
    (wish,) = again.operators._wishes.values()
    assert (wish.kind, wish.subject, wish.finished) == (Kind.DRAIN, "c1", True)
    again.close()


def test_the_store_has_the_last_word_about_drains_and_the_kept_fleet_speaks_where_it_is_new() -> None:
    old = KeptDrain(requested_by="operator", cause="old")
    cells = [KeptCell(id=name, node="n", site="s", host="h", port=1, drain=old) for name in ("c1", "c2")]
    kept = KeptFleet(region="r", cells=tuple(cells))
    assert with_drains(kept, None, 0.0) == kept
    wish = Wish(kind=Kind.DRAIN, subject="c1", cause="new", requested_by="operator", deadline_at=130.0)
    first, second = with_drains(kept, [wish], 100.0).cells
    assert first.drain == KeptDrain(requested_by="operator", cause="new", remaining_s=30.0)
    assert second.drain is None, "it was taken back after the fleet was kept"
    late = with_drains(kept, [wish], 1000.0).cells[0].drain
    assert late is not None
    assert late.remaining_s == 0.0


def test_what_cannot_be_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    region = serving(tmp_path)
    operators = region.operators
    for unknown in (
        lambda: operators.override("none", 5, "", ANNA),
        lambda: operators.override("none", None, "", ANNA),
        lambda: operators.cordon("rome", True, "", ANNA),
        lambda: operators.pin("none", [], "", ANNA),
        lambda: operators.drain("none", "", None, ANNA),
    ):
        with pytest.raises(KeyError):
            unknown()
    for impossible in (
        lambda: operators.override("c1", 0, "", ANNA),
        lambda: operators.override("c1", 101, "", ANNA),
        lambda: operators.pin("m", ["rome"], "", ANNA),
        lambda: operators.undrain("c1", "", ANNA),
    ):
        with pytest.raises(Refused):
            impossible()
    assert (region.loop.intents, operators.standing()) == (NO_INTENTS, ())
    region.close()


async def test_a_cordon_can_be_lifted_when_its_site_is_gone(tmp_path: Path) -> None:
    region = serving(tmp_path)
    await region.operators.cordon("berlin", True, "", ANNA)
    region.loop.fleet.remove("c1")
    region.loop.fleet.remove("c2")
    await region.operators.cordon("berlin", False, "", ANNA)
    assert region.loop.intents == NO_INTENTS
    region.close()


def test_without_a_place_nothing_is_said_to_be_kept() -> None:
    region = Region()
    assert region.operators.kept is False
