"""The formula of the cost, by hand; and what may be sent where."""

from __future__ import annotations

import numpy as np
import pytest

from headrace_controller.picker import cost
from headrace_controller.picker.candidates import Candidates, Lineup
from headrace_controller.picker.choice import BAND_S, Need, choose, fitting

NOW = 100.0


def predicted(
    row: dict[int, float], tokens: float = 1000, cached: float | None = None, **seen: float
) -> float:
    table = np.zeros((1, cost.COLUMNS))
    table[0, [cost.S_PER_TOKEN, cost.S_FIXED, cost.SINCE, cost.OTHERS_AT]] = (1e-4, 0.02, NOW, NOW)
    for column, value in row.items():
        table[0, column] = value
    lineup = Lineup("m", ("a",), ("a:80",), np.array([0]), np.array([np.inf]))
    rtt, penalty = np.array([seen.get("rtt", 0.0)]), np.array([seen.get("penalty", 1.0)])
    held = None if cached is None else np.array([cached])
    found = cost.costs(table, Candidates(lineup, NOW, rtt, penalty), tokens, NOW, held)
    assert found.cost[0] == found.predicted[0] * penalty[0]
    return float(found.predicted[0])


@pytest.mark.parametrize(
    ("row", "more", "expected"),
    [
        ({}, {}, 0.12),
        ({}, {"tokens": 10_000}, 1.02),
        ({}, {"rtt": 0.05}, 0.17),
        ({}, {"penalty": 3.0}, 0.12),
        ({}, {"cached": 400.0}, 0.08),
        ({}, {"cached": 4000.0}, 0.02),
        ({cost.PENDING: 5000, cost.HEAD: 2000}, {}, 0.62),
        # 0.1 s of the oldest request's 0.2 s are done.
        ({cost.PENDING: 5000, cost.HEAD: 2000, cost.SINCE: NOW - 0.1}, {}, 0.52),
        # It is 0.78 s later than it should be: the next ones will be, too.
        ({cost.PENDING: 5000, cost.HEAD: 2000, cost.SINCE: NOW - 1.0}, {}, 0.12 + 0.3 + 0.78),
        # Nothing is waited for, so nothing is late.
        ({cost.SINCE: NOW - 50.0}, {}, 0.12),
        # Others' work is done while time passes, and ours waits for it.
        ({cost.OTHERS: 3000}, {}, 0.42),
        ({cost.OTHERS: 3000, cost.OTHERS_AT: NOW - 0.2}, {}, 0.22),
        ({cost.OTHERS: 3000, cost.OTHERS_AT: NOW - 9.0}, {}, 0.12),
        ({cost.PENDING: 2000, cost.HEAD: 2000, cost.OTHERS: 3000, cost.SINCE: NOW - 0.4,
          cost.OTHERS_AT: NOW - 0.1}, {}, 0.12 + 0.2),
        ({cost.RUNNING: 40, cost.S_PER_RUNNING: 0.001}, {}, 0.16),
        # A request that was sent after this moment, as two clocks of a test may say, takes nothing back.
        ({cost.PENDING: 2000, cost.HEAD: 2000, cost.SINCE: NOW + 5.0}, {}, 0.32),
    ],
)  # fmt: skip
def test_the_predicted_time_to_first_token(
    row: dict[int, float], more: dict[str, float], expected: float
) -> None:
    assert predicted(row, **more) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("row", "cached", "answers"),
    [
        ({}, None, 0),
        ({cost.RUNNING: 40}, None, 40),
        # Who waits for a first token has no answer yet that is held up.
        ({cost.RUNNING: 40, cost.WAITING: 30}, None, 10),
        ({cost.RUNNING: 4, cost.WAITING: 6.5}, None, 0),
        # What is cached is not computed, and holds nobody up.
        ({cost.RUNNING: 40}, 500.0, 20),
        ({cost.RUNNING: 40}, 4000.0, 0),
    ],
)
def test_what_a_prompt_holds_up_is_charged(row: dict[int, float], cached: float | None, answers: int) -> None:
    """A prompt of 0.1 s; the time to first token that is predicted stays what it was."""
    table = np.zeros((1, cost.COLUMNS))
    table[0, [cost.S_PER_TOKEN, cost.SINCE, cost.OTHERS_AT]] = (1e-4, NOW, NOW)
    for column, value in row.items():
        table[0, column] = value
    lineup = Lineup("m", ("a",), ("a:80",), np.array([0]), np.array([np.inf]))
    candidates = Candidates(lineup, NOW, np.zeros(1), np.array([2.0]))
    held = None if cached is None else np.array([cached])
    found = cost.costs(table, candidates, 1000, NOW, held, held_up_weight=0.05)
    plain = cost.costs(table, candidates, 1000, NOW, held)
    assert found.held_up[0] == pytest.approx(0.1 * answers * 0.05)
    assert found.predicted[0] == plain.predicted[0]
    assert found.cost[0] == pytest.approx(2.0 * (plain.predicted[0] + found.held_up[0]))


def lineup_of(*lengths: float, greatest: float = np.inf) -> Lineup:
    cells = tuple(f"c{number}" for number in range(len(lengths)))
    return Lineup("m", cells, cells, np.arange(len(lengths)), np.array(lengths, dtype=np.float64), greatest)


@pytest.mark.parametrize(
    ("lengths", "greatest", "need", "expected"),
    [
        ((8192, 32768), 32768, Need(4000, 500), [True, True]),
        ((8192, 32768), 32768, Need(9000, 500), [False, True]),
        # What is likely too long for all goes where the most fits, for "likely" is no certainty.
        ((8192, 32768), 32768, Need(90_000, 8000), [False, True]),
        ((8192, 32768), 32768, Need(90_000, 40_000), [False, False]),
        # The large cell is away: the small one does not take its place.
        ((8192,), 32768, Need(9000, 500), [False]),
        ((8192,), 8192, Need(9000, 500), [True]),
        ((8192,), 8192, Need(9000, 8193), [False]),
        # The gateway's own choice of a class does not make it fit.
        ((8192, 32768), 32768, Need(8192, 8193, 8192), [False, True]),
        ((8192, np.inf), np.inf, Need(9000, 500), [False, True]),
        ((8192, 16384, 32768), 32768, Need(16384, 16, 16384), [False, True, True]),
        ((8192, 32768), 32768, Need(np.inf, 0), [False, True]),
    ],
)
def test_what_fits(lengths: tuple[float, ...], greatest: float, need: Need, expected: list[bool]) -> None:
    found = fitting(lineup_of(*lengths, greatest=greatest), need)
    assert ([True] * len(lengths) if found is None else found.tolist()) == expected


COST = np.array([1.0, 1.05, 1.3, 5.0])


def test_the_cheapest_is_named_and_the_next_ones_follow_for_retries() -> None:
    choice = choose(COST, None, 0.0, 0.99)
    assert choice is not None
    assert (choice.first, choice.fallbacks, choice.by_affinity) == (0, [1, 2], False)
    assert COST.tolist() == [1.0, 1.05, 1.3, 5.0]


def test_chance_decides_among_equals_only() -> None:
    rolls = np.linspace(0, 0.999, 100)
    chosen = [choose(COST, None, 0.1, chance).first for chance in rolls]  # type: ignore[union-attr]
    assert set(chosen) == {0, 1}
    assert 45 <= chosen.count(0) <= 55


def test_costs_of_some_milliseconds_are_equal_whatever_their_ratio() -> None:
    tiny = np.array([0.001, 0.001 + 0.9 * BAND_S])
    assert {choose(tiny, None, 0.0, chance).first for chance in (0.0, 0.9)} == {0, 1}  # type: ignore[union-attr]


@pytest.mark.parametrize(("balance", "first"), [(0.0, 0), (0.2, 0), (0.4, 2)])
def test_affinity_yields_when_its_cell_costs_too_much(balance: float, first: int) -> None:
    choice = choose(COST, None, 0.0, 0.0, preferred=(2,), balance=balance)
    assert choice is not None
    assert (choice.first, choice.by_affinity) == (first, first == 2)


def test_a_cost_that_is_no_number_keeps_its_cell_out_and_no_other() -> None:
    unknown = np.array([np.nan, 1.0, 2.0])
    choice = choose(unknown, None, 0.1, 0.99, preferred=(0,), balance=9.0)
    assert choice is not None
    assert (choice.first, choice.fallbacks) == (1, [2])
    assert choose(np.array([np.nan, np.inf]), None, 0.1, 0.5) is None


def test_who_is_not_usable_is_not_named_by_any_way() -> None:
    usable = np.array([False, False, True, True])
    choice = choose(COST, usable, 9.0, 0.0, preferred=(0, 1), balance=9.0)
    assert choice is not None
    assert {choice.first, *choice.fallbacks} == {2, 3}
    assert choose(COST, np.zeros(4, dtype=np.bool_), 0.1, 0.5) is None
    assert choose(np.zeros(0), None, 0.1, 0.5) is None
