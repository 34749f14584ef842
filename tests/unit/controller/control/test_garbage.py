"""What stays is out of the collector's sight, and is so again only after the fleet has grown."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from headrace_controller.control.garbage import GROWTH, LEAST_CELLS, Spared


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_a_fleet_is_spared_each_time_that_it_has_grown_by_a_quarter() -> None:
    spared = Spared()
    grown = int(LEAST_CELLS * GROWTH)
    looks = [LEAST_CELLS - 1, LEAST_CELLS, LEAST_CELLS, grown - 1, grown, LEAST_CELLS]
    assert [spared.look(cells) for cells in looks] == [False, True, False, False, True, False]


def test_what_is_there_is_frozen() -> None:
    before, stays = gc.get_freeze_count(), [[number] for number in range(1000)]
    assert Spared().look(LEAST_CELLS)
    assert gc.get_freeze_count() >= before + len(stays)
