"""Weights by what cells can do, and what is taken from that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.projection.asked import Asked
from headrace_controller.projection.projections import SpeedProjection
from headrace_controller.settings import ProjectionSettings

SETTINGS = ProjectionSettings()
UNIT = st.floats(0.0, 1.0)


def weights(
    load: Any,
    speed: Any = 1.0,
    health: Any = 1.0,
    blind: Any = False,
    pool: Any = None,
    ramp: Any = 1.0,
    reach: Any = None,
) -> list[int]:
    load = np.atleast_2d(np.asarray(load, dtype=float))
    m = load.shape[1]
    numbers = np.zeros(m, dtype=np.int64) if pool is None else np.asarray(pool)
    asked = Asked(
        keys=np.arange(m),
        pressure=load,
        ramp=np.broadcast_to(np.asarray(ramp, dtype=float), (m,)),
        pool=numbers,
        pools=int(numbers.max(initial=0)) + 1,
        held=np.zeros(m, dtype=np.bool_),
        now=0.0,
        health=np.broadcast_to(np.asarray(health, dtype=float), (m,)),
        speed=np.broadcast_to(np.asarray(speed, dtype=float), (m,)),
        blind=np.broadcast_to(np.asarray(blind), (m,)),
        reach=None if reach is None else np.atleast_2d(np.asarray(reach, dtype=float)),
    )
    found: list[int] = SpeedProjection(SETTINGS).project(asked)[0].tolist()
    return found


def test_weights_are_in_proportion_to_speeds() -> None:
    assert weights([0.3] * 4, speed=[1.0, 0.5, 2.0, 0.6]) == [50, 25, 100, 30]


def test_queues_that_differ_as_luck_has_it_move_nothing() -> None:
    assert weights([0.1, 0.3, 0.2, 0.34, 0.15]) == [100] * 5


def test_a_pressure_far_above_its_pools_is_relieved() -> None:
    found = weights([0.2, 0.2, 0.2, 0.7])
    assert found[:3] == [100] * 3
    assert found[3] == round(100 * (0.3 / 0.55) ** 3)


def test_all_being_full_relieves_nobody() -> None:
    assert weights([1.0, 1.0, 1.0]) == [100] * 3


def test_failures_and_warnings_act_in_full_and_at_once() -> None:
    assert weights([0.2] * 3, health=[1.0, 0.75, 0.0]) == [100, 42, 1]


def test_of_two_cells_the_better_one_is_usual() -> None:
    assert weights([0.2, 0.8])[1] < 10


def test_a_cell_of_unknown_speed_has_its_headroom() -> None:
    alone = weights([0.2, 0.5, 0.6], blind=True)
    assert alone == [100, round(100 * (0.5 / 0.8) ** 3), round(100 * (0.4 / 0.8) ** 3)]
    among = weights([0.2, 0.2, 0.3, 0.3], blind=[False, False, False, True])
    assert among == [100, 100, 100, round(100 * (0.7 / 0.8) ** 3)]


def test_pools_are_judged_apart() -> None:
    found = weights([0.1, 0.1, 0.1, 0.6, 0.6, 0.6], pool=[0, 0, 0, 1, 1, 1])
    assert found == [100] * 6


def test_a_ramp_takes_its_part() -> None:
    assert weights([0.2] * 3, ramp=[1.0, 0.5, 0.0]) == [100, 50, 1]


def test_a_path_takes_its_part_whatever_the_sharpness() -> None:
    assert weights([0.2] * 4, speed=[1.0, 0.5, 1.0, 1.0], reach=[1.0, 0.5, 0.02, 0.5]) == [100, 25, 2, 50]
    assert weights([0.2] * 2, reach=[0.02, 0.02]) == [100, 100]
    assert weights([0.2] * 2, reach=[1.0, 1.0]) == weights([0.2] * 2)


@given(
    st.lists(st.tuples(UNIT, st.floats(0.1, 3.0), UNIT, st.booleans()), min_size=1, max_size=12), st.data()
)
def test_order_does_not_matter_and_weights_are_in_range(
    cells: list[tuple[float, float, float, bool]], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(cells))))
    load, speed, health, blind = (list(each) for each in zip(*cells, strict=True))
    found = weights(load, speed, health, blind)
    assert all(1 <= weight <= SETTINGS.max_weight for weight in found)
    assert max(found) == SETTINGS.max_weight
    mixed = [[each[at] for at in order] for each in (load, speed, health, blind)]
    assert weights(*mixed) == [found[at] for at in order]


@given(st.lists(UNIT, min_size=2, max_size=9), st.lists(st.booleans(), min_size=9, max_size=9), UNIT)
def test_a_part_never_rises_with_its_pressure(loads: list[float], flags: list[bool], more: float) -> None:
    blind = flags[: len(loads)]
    before = weights(loads, blind=blind)
    pressed = [max(loads[0], more), *loads[1:]]
    after = weights(pressed, blind=blind)
    best_before, best_after = max(before[1:]), max(after[1:])
    # As shares, for the best of the pool always has the most.
    assert after[0] / best_after <= before[0] / best_before * 1.05 + 0.01


@pytest.mark.parametrize("blind", [False, True])
def test_nobody_there_is_no_error(blind: bool) -> None:
    assert weights(np.zeros((1, 0)), speed=np.zeros(0), health=np.zeros(0), blind=np.full(0, blind)) == []
