"""Which classes a pool has, and the joint weights of nested classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.capability import class_lengths, factors, groups_of

LENGTHS = st.lists(st.none() | st.integers(1, 2**20), max_size=40)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([], ()),
        ([None, None], ()),
        ([4096], ()),
        ([4096, 4096, None], ()),
        ([4096, 1024, 32768, 1024], (1024, 4096, 32768)),
        # Too many: 30000 and 32768 are the closest, and the greatest stays.
        ([1024, 4096, 8192, 30000, 32768], (1024, 4096, 8192, 32768)),
        # The smallest stays as well.
        ([1000, 1024, 4096, 16384, 65536], (1000, 4096, 16384, 65536)),
    ],
)
def test_the_classes_of_a_pool(lengths: list[int | None], expected: tuple[int, ...]) -> None:
    assert class_lengths(lengths, 4) == expected


@given(LENGTHS, st.integers(2, 6))
def test_classes_rise_keep_both_ends_and_are_bounded(lengths: list[int | None], most: int) -> None:
    found = class_lengths(lengths, most)
    known = {length for length in lengths if length}
    if len(known) < 2:
        assert found == ()
        return
    assert list(found) == sorted(set(found))
    assert (found[0], found[-1]) == (min(known), max(known))
    assert 2 <= len(found) == min(most, len(known))


@given(LENGTHS)
def test_no_cell_serves_a_class_that_is_too_long_for_it(lengths: list[int | None]) -> None:
    classes = class_lengths(lengths, 4)
    if classes:
        for length, group in zip(lengths, groups_of(lengths, classes).tolist(), strict=True):
            assert length is None or classes[group] <= length


def loads(demand: np.ndarray, room: np.ndarray) -> np.ndarray:
    """The load per room of each group when every class is spread by weight times factor."""
    made = factors(demand, room)
    share = made * room
    share = share / share.sum(axis=1, keepdims=True)
    load = (share * demand[:, np.newaxis]).sum(axis=0)
    return np.divide(load, room, out=np.zeros(len(room)), where=room > 0)


def test_the_large_cells_give_short_requests_away_for_the_long_ones_they_carry() -> None:
    """One small cell and two large ones, alike but for their length; 40 % of the load is long."""
    demand, room = np.array([0.6, 0.4]), np.array([100.0, 200.0])
    assert loads(demand, room) == pytest.approx([1 / 300, 1 / 300])
    # 0.6 of short load: 1/3 for the small cell, the rest, 4/15, for two large ones.
    assert factors(demand, room) == pytest.approx(np.array([[1.0, 0.4], [0.0, 1.0]]))


def test_more_long_load_than_their_share_leaves_the_large_cells_no_short_requests() -> None:
    made = factors(np.array([0.1, 0.9]), np.array([100.0, 100.0]))
    assert made == pytest.approx(np.array([[1.0, 0.0], [0.0, 1.0]]))


def test_without_long_load_all_cells_share_the_short_requests_alike() -> None:
    made = factors(np.array([1.0, 0.0]), np.array([100.0, 300.0]))
    assert made == pytest.approx(np.array([[1.0, 1.0], [0.0, 1.0]]))


def test_a_mix_that_is_not_known_leaves_the_weights_as_they_are() -> None:
    assert factors(None, np.array([100.0, 300.0])) == pytest.approx(np.array([[1.0, 1.0], [0.0, 1.0]]))


def test_a_class_without_cells_goes_to_the_next_larger_or_to_the_largest_there_is() -> None:
    made = factors(np.array([0.3, 0.3, 0.4]), np.array([0.0, 100.0, 0.0]))
    assert made == pytest.approx(np.array([[0.0, 1.0, 0.0]] * 3))
    assert not factors(np.array([0.5, 0.5]), np.zeros(2)).any()


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from([0.0, 1.0, 50.0, 100.0, 1000.0])), min_size=2, max_size=6
    )
)
def test_loads_are_as_equal_as_nested_classes_allow(groups: list[tuple[float, float]]) -> None:
    """No load can be moved to a less loaded group that may take it: the fairest division there is."""
    demand, room = (np.array(column) for column in zip(*groups, strict=True))
    if not room.any() or demand.sum() < 1e-6:
        return
    made = factors(demand, room)
    assert (made.max(axis=1) == 1.0).all()
    level = loads(demand, room)
    assert (room * level).sum() == pytest.approx(demand.sum())
    for lower in range(len(room)):
        for upper in range(lower + 1, len(room)):
            if room[lower] and room[upper] and made[lower, lower]:
                # Requests of the lower group's class may go up, so the upper one is never the idler.
                assert level[upper] >= level[lower] - 1e-6 * max(1.0, level[lower])
