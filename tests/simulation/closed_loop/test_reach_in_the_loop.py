"""A quick pool over near and far sites in a closed loop: the far ones serve what the near ones cannot."""

from __future__ import annotations

import pytest

from tests.simulation.closed_loop.plant import Cell, Loop

NEAR, FAR = ("a", "b", "c"), ("x", "y", "z")
PROJECTIONS = ("speed", "headroom")


def quick(load: float, projection: str, **fields: object) -> Loop:
    """Six cells that answer in tens of milliseconds, three of them 80 ms further; the load has risen, in two
    minutes, to that part of what all of them can carry."""
    cells = {name: Cell(servers=32, service_s=0.4, prefill_s=0.02, rtt_ms=4.0) for name in NEAR}
    cells |= {name: Cell(servers=32, service_s=0.4, prefill_s=0.02, rtt_ms=84.0) for name in FAR}
    loop = Loop(cells, 40.0, name=projection, settle_s=40.0, **fields)  # type: ignore[arg-type]
    for step in range(120):
        loop.rps = load * 6 * 32 / 0.4 * (step + 1) / 120
        loop.run(1.0)
    return loop


def share_of(loop: Loop, cells: tuple[str, ...]) -> float:
    return sum(map(loop.share, cells))


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_far_cells_get_next_to_nothing_as_long_as_near_ones_can_take_it_all(projection: str) -> None:
    loop = quick(0.1, projection, seed=1)
    loop.run(60.0)
    assert share_of(loop, FAR) < 0.05
    assert loop.run(120.0) == []


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_far_cells_are_opened_where_near_ones_cannot_take_it_all(projection: str) -> None:
    loop = quick(0.7, projection, seed=1)
    loop.run(60.0)
    assert share_of(loop, FAR) > 1 - 0.5 / 0.7
    waiting = []
    for _ in range(120):
        loop.run(1.0)
        waiting.append(sum(loop.cells[name].waiting for name in NEAR))
    assert sorted(waiting)[60] < 16
    assert share_of(loop, FAR) > 1 - 0.5 / 0.7


def test_they_are_closed_again_when_the_load_is_gone() -> None:
    loop = quick(0.7, "speed")
    assert share_of(loop, FAR) > 1 - 0.5 / 0.7
    loop.rps /= 7
    loop.run(900.0)
    assert share_of(loop, FAR) < 0.05
