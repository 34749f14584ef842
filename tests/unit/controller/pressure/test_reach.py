"""What paths leave of cells: near and far, waiting, unknown, dead, and how fast it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.inventory import Fleet
from headrace_controller.pressure import reach
from headrace_controller.pressure.reach import Reacher, Seen
from tests.unit.controller.inventory.builders import facts, hello

UNLOADED_S = 0.04
FULL_S = 0.25
IDLE = 0.02
SETTLED_S = 60.0
FAR_MS = 80.0
UNKNOWN = float("nan")
LEAST = round(reach.LEAST, 9)


class Paths:
    """READY cells as seen from one gateway, and what is told of them; what is not said again stands."""

    def __init__(self, rtt_ms: Sequence[float], **fields: Any) -> None:
        n = len(rtt_ms)
        self.now, self.fleet = 1000.0, Fleet(["g"])
        models: Mapping[int, tuple[str, ...]] = fields.pop("models", {})
        for number in range(n):
            named = facts(f"c{number}", models.get(number, ("m",)), 8000 + number)
            self.fleet.register(f"n{number}", "s", hello(named), 0.0)
        self.reacher = Reacher(1)
        self.ready = np.ones(n, dtype=np.bool_)
        self.told: dict[str, Any] = {
            "rtt_ms": rtt_ms, "jitter_ms": 0.0, "loss": 0.0, "dead": False, "ttft": UNLOADED_S,
            "least": UNLOADED_S, "compute": IDLE, "full_s": FULL_S, "frozen": False, "unread": False,
        }  # fmt: skip
        self.told |= fields

    def look(self, seconds: float = 0.5, **told: Any) -> list[float]:
        """The reaches after one more look."""
        self.told |= told
        self.now += seconds
        n = self.fleet.size
        array = {name: np.broadcast_to(np.asarray(value), (n,)) for name, value in self.told.items()}
        path = np.stack((array["rtt_ms"], array["jitter_ms"]), axis=-1)[None].astype(float)
        path[0, array["dead"]] = np.nan
        rest = ("ttft", "least", "compute", "full_s", "frozen", "unread")
        seen = Seen(path, array["loss"][None], array["dead"][None], *(array[name] for name in rest))
        found = self.reacher.look(self.fleet, seen, self.ready, self.now)
        reaches: list[float] = [1.0] * n if found is None else np.round(found.factor[0], 9).tolist()
        return reaches

    def after(self, seconds: float, **told: Any) -> list[float]:
        """The reaches when that has been so for long."""
        for _ in range(round(2 * seconds)):
            found = self.look(**told)
        return found


def test_equal_paths_and_paths_that_matter_little_take_nothing() -> None:
    assert Paths([5.0, 5.0, 5.3]).look() == [1.0] * 3
    assert Paths([4.0, 20.0]).look() == [1.0] * 2
    assert Paths([2.0, 24.0, 62.0], full_s=2.4).look() == [1.0] * 3


def test_a_far_cell_of_a_quick_pool_has_next_to_nothing_at_first_sight() -> None:
    near, middle, far = Paths([4.0, 30.0, FAR_MS]).look()
    assert near == 1.0
    assert middle == pytest.approx(1 / (1 + (26 / 25) ** 4), rel=0.06)
    assert far == LEAST


def test_jitter_and_loss_count_as_distance() -> None:
    steady, uneven = Paths([4.0, 24.0]).look()[1], Paths([4.0, 24.0], jitter_ms=[0.2, 20.0]).look()[1]
    assert steady == 1.0
    assert uneven < 0.2
    lossy = Paths([4.0, 24.0], loss=[0.0, 0.04])
    assert lossy.look()[1] == 1.0
    assert lossy.after(120.0)[1] < 0.2


def test_one_lost_echo_moves_nothing() -> None:
    paths = Paths([4.0, 14.0])
    for _ in range(20):
        assert paths.look(loss=[0.0, 0.05]) == [1.0, 1.0]
    assert paths.after(60.0, loss=0.0) == [1.0, 1.0]


def test_nothing_is_taken_while_no_ttft_is_known() -> None:
    assert Paths([4.0, FAR_MS], ttft=UNKNOWN, least=UNKNOWN).look() == [1.0, 1.0]


def test_a_cell_to_which_no_request_comes_waits_for_nothing() -> None:
    assert Paths([4.0, FAR_MS], ttft=UNKNOWN).look()[1] == LEAST


def test_far_cells_are_opened_when_near_ones_wait_and_closed_late_again() -> None:
    paths = Paths([4.0, 4.0, FAR_MS])
    assert paths.look()[2] == LEAST
    waiting = [2 * UNLOADED_S, 2 * UNLOADED_S, UNLOADED_S]
    assert paths.look(ttft=waiting) == [1.0] * 3
    assert paths.after(90.0, ttft=UNLOADED_S) == [1.0] * 3
    assert paths.after(600.0)[2] < 0.05


def test_one_near_cell_that_waits_opens_a_little_only() -> None:
    paths = Paths([4.0, 4.0, 4.0, 4.0, FAR_MS])
    assert paths.look(ttft=[1.0, *[UNLOADED_S] * 4])[4] < 0.2


def test_a_little_more_than_without_load_is_no_waiting() -> None:
    assert Paths([4.0, FAR_MS], ttft=[1.2 * UNLOADED_S, UNLOADED_S]).look()[1] == LEAST


def test_longer_prompts_everywhere_are_no_waiting() -> None:
    paths = Paths([4.0, FAR_MS])
    assert paths.look(ttft=1.9 * UNLOADED_S)[1] == LEAST


def test_busy_near_cells_are_given_more_slowly() -> None:
    def fall(compute: float, seconds: float) -> float:
        paths = Paths([4.0, 4.0], compute=compute)
        paths.look()
        return paths.after(seconds, rtt_ms=[4.0, FAR_MS])[1]

    assert fall(IDLE, 20.0) < 0.05
    assert fall(0.5, 20.0) > 0.4
    assert fall(UNKNOWN, 20.0) > 0.4
    assert fall(0.5, 180.0) < 0.05


def test_a_route_change_is_followed_in_few_steps_both_ways() -> None:
    paths = Paths([4.0, 20.0, 20.0])
    paths.look()
    seen = {tuple(paths.look(rtt_ms=[4.0, 20.0, 120.0])) for _ in range(60)}
    assert (1.0, 1.0, LEAST) in seen
    assert len(seen) <= 9
    assert paths.after(10.0, rtt_ms=[4.0, 20.0, 20.0])[2] < 0.1
    assert paths.after(110.0) == [1.0] * 3


def test_round_trips_that_swing_move_nothing() -> None:
    luck = np.random.default_rng(1)
    paths = Paths([4.0, 34.0, FAR_MS])
    paths.after(SETTLED_S)
    found = {
        tuple(paths.look(rtt_ms=np.array([4.0, 34.0, FAR_MS]) + luck.normal(0, 1, 3))) for _ in range(600)
    }
    assert len(found) <= 2


def test_a_dead_path_falls_to_the_least_however_busy_the_others_are() -> None:
    paths = Paths([4.0, 4.0, 4.0], compute=0.6, full_s=5.0)
    assert paths.look() == [1.0] * 3
    assert paths.after(15.0, dead=[False, False, True]) == [1.0, 1.0, LEAST]
    assert paths.look(dead=False) == [1.0] * 3


def test_where_all_paths_are_dead_all_are_alike() -> None:
    found = Paths([4.0, 4.0], dead=True).look()
    assert found[0] == found[1] > 0


def test_an_unknown_path_has_the_middle_of_its_pool() -> None:
    found = Paths([4.0, 30.0, FAR_MS, UNKNOWN]).look()
    assert found[3] == found[1]
    assert Paths([UNKNOWN, UNKNOWN]).look() == [1.0, 1.0]


def test_what_is_held_for_its_silence_stays() -> None:
    paths = Paths([4.0, 30.0, FAR_MS])
    before = paths.look()
    silent = {"frozen": [False, False, True], "unread": [False, False, True]}
    assert paths.after(30.0, rtt_ms=[4.0, 30.0, UNKNOWN], **silent) == before
    assert paths.look(ttft=[1.0, 1.0, UNLOADED_S]) == [1.0, 1.0, before[2]]


def test_waiting_that_is_no_more_told_is_taken_to_last() -> None:
    paths = Paths([4.0, FAR_MS])
    assert paths.look(ttft=[1.0, UNLOADED_S]) == [1.0, 1.0]
    assert paths.after(600.0, ttft=UNLOADED_S, unread=[True, False]) == [1.0, 1.0]


def test_the_nearest_is_one_that_may_have_requests() -> None:
    paths = Paths([4.0, 70.0, 75.0])
    assert paths.look()[1:] == [LEAST, LEAST]
    paths.ready = np.array([False, True, True])
    assert paths.look()[1:] == [1.0, 1.0]


def test_pools_are_judged_apart_and_a_cell_of_two_has_its_best() -> None:
    models = {0: ("m",), 1: ("m", "x"), 2: ("x",), 3: ("m",)}
    found = Paths([4.0, FAR_MS, FAR_MS, FAR_MS], models=models).look()
    assert found == [1.0, 1.0, 1.0, LEAST]


def test_it_outlives_a_controller() -> None:
    old = Paths([4.0, FAR_MS])
    old.look()
    young = Paths([4.0, FAR_MS], ttft=UNKNOWN, least=UNKNOWN)
    young.reacher.restore(young.fleet, 1, old.reacher.record(old.fleet, 1))
    # It knows of no TTFT, and opens.
    assert young.look() == [1.0, 1.0]
    busy = Paths([4.0, FAR_MS], compute=0.5)
    busy.reacher.restore(busy.fleet, 1, (0.0,))
    # It was open, and is closed no faster than any.
    assert busy.look() == [1.0, 1.0]
    other = Paths([4.0, FAR_MS])
    other.reacher.restore(other.fleet, 1, (0.0, 0.0))
    assert other.look()[1] == LEAST


PATHS = st.lists(st.floats(0.0, 300.0), min_size=1, max_size=12)


@given(PATHS, st.data())
def test_bounds_and_order(rtt_ms: list[float], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(rtt_ms))))
    found = Paths(rtt_ms).look()
    assert all(LEAST * 0.99 <= each <= 1.0 for each in found)
    assert max(found) == 1.0
    assert Paths([rtt_ms[at] for at in order]).look() == [found[at] for at in order]


@given(PATHS, st.floats(0.0, 100.0))
def test_a_reach_never_rises_with_its_path(rtt_ms: list[float], more: float) -> None:
    nearest = [0.0, *rtt_ms]
    before, after = Paths(nearest).look(), Paths([*nearest[:-1], nearest[-1] + more]).look()
    assert after[-1] <= before[-1]
    assert after[:-1] == before[:-1]


@given(PATHS, st.data())
def test_one_nan_touches_one_cell(rtt_ms: list[float], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(rtt_ms)))
    paths = [0.0, *rtt_ms]
    before = Paths(paths).look()
    after = Paths([UNKNOWN if each == at else rtt for each, rtt in enumerate(paths)]).look()
    assert np.isfinite(after).all()
    assert [each for number, each in enumerate(after) if number != at] == [
        each for number, each in enumerate(before) if number != at
    ]
