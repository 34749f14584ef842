"""The arrays decide as a loop over gateways and members would."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headrace_controller.projection import Hysteresis, Members
from headrace_controller.projection.headroom import headroom
from headrace_controller.settings import ProjectionSettings

Flags = NDArray[np.bool_]
GATEWAYS = 2
MOST = 100


@dataclass(frozen=True)
class Row:
    """One member at one tick, as both gateways see it."""

    weights: tuple[int, int]
    raw: tuple[float, float]
    held: bool
    ramping: bool
    exact: bool


@dataclass
class Told:
    """What was pushed of one member."""

    weights: list[int]
    raw: list[float]
    ramping: bool
    trend: list[int]


@dataclass
class PlainJudge:
    """The rules of `Hysteresis`, one member and gateway at a time."""

    settings: ProjectionSettings
    told: dict[int, Told] | None = None
    pushed_at: float = -math.inf
    reached: list[str] = field(default_factory=list)

    def judge(self, rows: dict[int, Row], now: float, force: str) -> tuple[str, list[list[int]]]:
        """The reason, "" = no push, and what gateways hold after it, (G, m)."""
        old = self.told or {}
        made = {key: self._of_member(row, old.get(key)) for key, row in rows.items()}
        reason = force or self._reason(rows, old, made, now)
        if reason:
            self.told, self.pushed_at = made, now
            held = [told.weights for told in made.values()]
        else:
            held = [old[key].weights for key in rows]
        return reason, [[weights[gateway] for weights in held] for gateway in range(GATEWAYS)]

    def _of_member(self, row: Row, was: Told | None) -> Told:
        if was is None:
            return Told(list(row.weights), list(row.raw), row.ramping, [0, 0])
        made = Told(list(was.weights), list(row.raw), row.ramping, list(was.trend))
        for gateway in range(GATEWAYS):
            new, old = row.weights[gateway], was.weights[gateway]
            told = new if row.ramping or was.ramping or row.exact else self._within_reach(new, old)
            if told != new:
                made.raw[gateway] = was.raw[gateway]
            if self._moves(row, was, gateway):
                made.weights[gateway] = told
            if made.weights[gateway] != old:
                made.trend[gateway] = 1 if made.weights[gateway] > old else -1
        return made

    def _moves(self, row: Row, was: Told, gateway: int) -> bool:
        new, old = row.weights[gateway], was.weights[gateway]
        if new == old:
            return False
        if row.exact:
            return True
        deadband = self.settings.deadband
        least = deadband * max(new, old, 0.1 * MOST)
        if (new - old) * was.trend[gateway] < 0:
            least *= 2
        out = not deadband or abs(new - old) > least or new == 1 or (was.ramping and not row.ramping)
        return out and not row.held

    def _within_reach(self, new: int, old: int) -> int:
        factor = self.settings.max_change
        low = max(min(math.ceil(old / factor - 1e-9), old - 1), 1)
        return min(max(new, low), max(math.floor(old * factor + 1e-9), old + 1), MOST)

    def _reason(self, rows: dict[int, Row], old: dict[int, Told], made: dict[int, Told], now: float) -> str:
        if self.told is None:
            return "first"
        if rows.keys() != old.keys():
            return "membership"
        if all(self._stays(rows[key], old[key]) for key in rows):
            return ""
        if any(self._is_emergency(rows[key], old[key]) for key in rows):
            return "emergency"
        return "weights" if now - self.pushed_at >= self.settings.push_interval_s else ""

    def _stays(self, row: Row, was: Told) -> bool:
        return not any(self._moves(row, was, gateway) for gateway in range(GATEWAYS))

    def _is_emergency(self, row: Row, was: Told) -> bool:
        risen = any(
            raw - before > self.settings.emergency for raw, before in zip(row.raw, was.raw, strict=True)
        )
        return risen and not row.held


weights = st.integers(1, MOST) | st.sampled_from([1, 2, 10, 90, 100])
pressures = st.sampled_from([0.0, 0.2, 0.45, 0.9])
rarely = st.sampled_from([False, False, False, True])
rows = st.builds(Row, st.tuples(weights, weights), st.tuples(pressures, pressures), rarely, rarely, rarely)
fleets = st.dictionaries(st.integers(1, 6), rows, max_size=5)
near = st.lists(st.tuples(st.integers(-12, 12), st.integers(-12, 12)), min_size=6, max_size=6)
ticks = st.tuples(fleets | near, st.sampled_from([0.1, 0.6, 1.0]), st.sampled_from(["", "", "", "lifecycle"]))


def arrays(rows: dict[int, Row], keys: NDArray[np.int64]) -> Members:
    """What the tested class is given."""
    made = list(rows.values())
    columns = (GATEWAYS, len(made))
    return Members(
        keys,
        np.array([row.weights for row in made], dtype=np.int64).reshape(columns[::-1]).T,
        np.array([row.raw for row in made], dtype=np.float64).reshape(columns[::-1]).T,
        np.array([row.held for row in made], dtype=np.bool_),
        _or_none([row.ramping for row in made]),
        _or_none([row.exact for row in made]),
    )


def _or_none(flags: list[bool]) -> Flags | None:
    return np.array(flags, dtype=np.bool_) if any(flags) else None


def moved(rows: dict[int, Row], by: list[tuple[int, int]]) -> dict[int, Row]:
    """The same members with weights that are a little different."""
    found = {}
    for (key, row), steps in zip(rows.items(), by, strict=False):
        first, second = (
            min(max(1, weight + step), MOST) for weight, step in zip(row.weights, steps, strict=True)
        )
        found[key] = replace(row, weights=(first, second))
    return found


@settings(max_examples=300)
@given(
    st.lists(ticks, min_size=1, max_size=8), st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from([1.5, 10000.0])
)
def test_any_run_of_ticks_is_judged_as_member_by_member(
    run: list[tuple[dict[int, Row] | list[tuple[int, int]], float, str]], deadband: float, change: float
) -> None:
    knobs = ProjectionSettings(deadband=deadband, max_change=change, max_weight=MOST)
    tested, plain = Hysteresis(knobs), PlainJudge(knobs)
    now, fleet, keys = 0.0, dict[int, Row](), np.zeros(0, dtype=np.int64)
    for given_rows, seconds, force in run:
        now += seconds
        if isinstance(given_rows, dict):
            fleet = given_rows
            keys = np.array(list(fleet), dtype=np.int64)
        else:
            fleet = moved(fleet, given_rows)  # the array of keys stays, as it does in the projector
        verdict = tested.judge(arrays(fleet, keys), now, force)
        reason, held = plain.judge(fleet, now, force)
        assert (verdict.reason, verdict.weights.tolist()) == (reason, held)


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1) | st.just(1.0), st.integers(0, 2)),
        max_size=12,
    ),
    st.floats(0.1, 20),
)
def test_headroom_is_that_of_each_member_against_the_best_of_its_pool(
    cells: list[tuple[float, float, float, int]], sharpness: float
) -> None:
    knobs = ProjectionSettings(max_weight=MOST, sharpness=sharpness)
    pressure = np.array([cell[:GATEWAYS] for cell in cells]).reshape(-1, GATEWAYS).T
    ramp = np.array([cell[2] for cell in cells], dtype=np.float64)
    pool = np.array([cell[3] for cell in cells], dtype=np.int64)
    found = headroom(pressure, ramp, pool, 3, knobs)
    for gateway in range(GATEWAYS):
        rooms = [max(1 - cell[gateway], 1e-6) ** sharpness * max(cell[2], 1e-3) for cell in cells]
        for number, (room, (*_, own)) in enumerate(zip(rooms, cells, strict=True)):
            best = max(each for each, cell in zip(rooms, cells, strict=True) if cell[3] == own)
            exact = MOST * room / best
            assert abs(max(exact, 1.0) - found[gateway, number]) <= 0.5 + 1e-9 * MOST
