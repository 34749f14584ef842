"""Weights in a closed loop: they stand still in equilibrium, and settle after a change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.closed_loop.plant import Cell, Loop

PROJECTIONS = ("speed", "headroom", "equalise")


def fleet(count: int = 3, **fields: float) -> dict[str, Cell]:
    return {f"c{number}": Cell(**fields) for number in range(count)}


def loaded(cells: dict[str, Cell], load: float, **fields: object) -> Loop:
    """A fleet under that part of what it can carry."""
    most = sum(cell.servers / cell.service_s for cell in cells.values())
    return Loop(cells, load * most, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("seed", range(2))
def test_an_equilibrium_pushes_nothing(projection: str, seed: int) -> None:
    loop = loaded(fleet(6, servers=256, service_s=4.0), 0.4, seed=seed, name=projection, settle_s=90.0)
    assert loop.run(120.0) == []


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_an_equilibrium_of_unequal_cells_pushes_nothing(projection: str) -> None:
    cells = {
        "a": Cell(servers=256, service_s=3.0),
        "b": Cell(servers=256, service_s=3.0, rtt_ms=80.0),
        "c": Cell(servers=256, service_s=4.5),
    }
    loop = loaded(cells, 0.5, seed=3, name=projection, settle_s=240.0)
    assert loop.run(120.0) == []


def slower(loop: Loop) -> None:
    loop.cells["c2"].service_s *= 2


def busier(loop: Loop) -> None:
    loop.rps *= 1.4


def farther(loop: Loop) -> None:
    loop.cells["c2"].rtt_ms += 100


def refusing(loop: Loop) -> None:
    loop.cells["c2"].refused = 0.5


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("change", [slower, busier, farther, refusing])
def test_a_step_settles_within_ten_pushes_and_hardly_overshoots(
    projection: str, change: Callable[[Loop], None]
) -> None:
    loop = loaded(fleet(), 0.6, name=projection)
    before = loop.share("c2")
    change(loop)
    pushes = loop.run(120.0)
    assert len(pushes) <= 10
    assert loop.run(60.0) == []
    shares = [weights["c2"] / sum(weights.values()) for _, _, weights in pushes]
    after = loop.share("c2")
    beyond = max(((after - share) * (1 if after < before else -1) for share in shares), default=0.0)
    assert beyond <= 0.2 * abs(after - before) + 1e-9


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_a_slow_cell_gets_less_and_its_queue_drains(projection: str) -> None:
    loop = loaded(fleet(), 0.6, name=projection)
    slower(loop)
    loop.run(120.0)
    assert 0.1 < loop.share("c2") < 0.29
    assert loop.cells["c2"].waiting < 1.0


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_what_was_lost_is_given_back(projection: str) -> None:
    loop = loaded(fleet(), 0.6, name=projection)
    slower(loop)
    loop.run(90.0)
    loop.cells["c2"].service_s /= 2
    pushes = loop.run(150.0)
    assert len(pushes) <= 10
    assert loop.share("c2") == pytest.approx(1 / 3, abs=0.08)


def test_equalise_makes_pressures_equal() -> None:
    loop = loaded({"a": Cell(), "b": Cell(), "c": Cell(servers=8.0)}, 0.6, name="equalise", tolerance=0.01)
    loop.run(300.0)
    pressures = [loop.pressure(cell) for cell in "abc"]
    assert max(pressures) - min(pressures) < 0.06
    assert loop.share("c") == pytest.approx(0.2, abs=0.05)


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_no_push_of_a_closed_loop_goes_beyond_the_factor(projection: str) -> None:
    loop = loaded(fleet(), 0.6, name=projection)
    last = dict(loop.weights)
    refusing(loop)
    for _, _, weights in loop.run(60.0):
        for cell, weight in weights.items():
            old = last[cell]
            assert abs(weight - old) <= 1 or old / 2.0 <= weight <= old * 2.0
        last = weights
    assert last["c2"] == 1


def test_bursts_are_followed_and_less_waits_than_with_equal_weights() -> None:
    """Standing still is no end in itself: a queue that has come about by luck is evened out."""

    def waiting(**fields: object) -> float:
        loop = loaded(fleet(9), 0.85, seed=5, settle_s=30.0, **fields)
        total = 0.0
        for _ in range(200):
            loop.run(0.5)
            total += sum(cell.waiting for cell in loop.cells.values())
        return total

    assert waiting() < 0.85 * waiting(deadband=1.0, emergency=1.0, push_interval_s=60.0)
