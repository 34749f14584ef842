"""The sums over decoding sequences agree with counting one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_lab.engine.decoders import Decoders
from headrace_lab.engine.requests import Request
from headrace_lab.engine.sequences import Sequence, Step


def sequence(prompt: int, output: int) -> Sequence:
    made = Sequence(Request(f"{prompt}/{output}", prompt, output), output, False, 0.0)
    made.generated = 1
    return made


def blocks(known: int, size: int) -> int:
    return -(-known // size)


@given(
    st.integers(1, 17),
    st.lists(st.tuples(st.integers(1, 90), st.integers(2, 40)), min_size=1, max_size=8),
    st.integers(0, 50),
    st.integers(0, 3),
)
def test_growth_is_the_blocks_that_all_of_them_need(
    size: int, wanted: list[tuple[int, int]], passes: int, first: int
) -> None:
    decoders = Decoders(size)
    known = []
    for prompt, output in wanted:
        decoders.join(sequence(prompt, output))
        known.append(prompt + 1)
        decoders.advance(1)
        known = [each + 1 for each in known]
    assert decoders.context == sum(known)
    # A pass computes the newest token, so before it a sequence has room for all but that one.
    begin = [blocks(each + first - 1, size) for each in known]
    end = [blocks(each + first + passes - 1, size) for each in known]
    assert decoders.growth(first, passes) == sum(end) - sum(begin)


@given(
    st.integers(1, 17),
    st.lists(st.tuples(st.integers(1, 90), st.integers(2, 40)), min_size=1, max_size=8),
    st.integers(0, 60),
    st.integers(0, 40),
)
def test_room_is_the_most_passes_that_fit(
    size: int, wanted: list[tuple[int, int]], most: int, free: int
) -> None:
    decoders = Decoders(size)
    for prompt, output in wanted:
        decoders.join(sequence(prompt, output))
    passes = decoders.room_for(most, free)
    assert 0 <= passes <= most
    assert decoders.growth(1, passes) <= free
    if passes < most:
        assert decoders.growth(1, passes + 1) > free


def test_answers_end_in_time_and_those_that_left_do_not() -> None:
    decoders = Decoders(16)
    short, long, gone = sequence(5, 3), sequence(5, 9), sequence(5, 2)
    for each in (long, short, gone):
        decoders.join(each)
    decoders.leave(gone)
    assert decoders.until_end() == 2
    decoders.advance(2)
    assert decoders.ended() == [short]
    assert decoders.generated(short) == 3
    decoders.leave(short)
    assert [(left, each) for left, each in decoders.ends()] == [(6, long)]


@given(st.integers(2, 300), st.floats(0.001, 0.1), st.floats(0, 0.001), st.floats(0, 1))
def test_passes_done_by_a_moment(count: int, first_s: float, grows_s: float, share: float) -> None:
    step = Step(10.0, count, first_s, grows_s, (), 0, 1, 0.0, 0.0)
    now = 10.0 + share * step.duration_s
    done = step.done_by(now)
    assert 0 <= done < count
    assert step.after(done) <= now - 10.0 + 1e-9
    if done < count - 1:
        assert step.after(done + 1) > now - 10.0 - 1e-9
