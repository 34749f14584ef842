"""What engines count: tokens found in prefix caches, and tokens computed while they had a queue."""

from __future__ import annotations

import numpy as np
import pytest

from headrace_controller.picker.affinity import fullest
from headrace_controller.picker.cache_check import WINDOW_TOKENS, CacheCheck
from headrace_controller.picker.picker import Picker
from headrace_controller.picker.rates import Learner
from headrace_controller.picker.requests import Outcome
from headrace_controller.picker.throughput import WINDOW_TOKENS as STRETCH_TOKENS
from headrace_controller.picker.throughput import Throughput
from tests.unit.controller.picker.builders import GATEWAY, MODEL, ask, line_up, picker_of

MANY = int(2 * WINDOW_TOKENS)


def checked(sent: float, expected: float, prompt: int, cached: int) -> float | None:
    check = CacheCheck()
    check.counted(0, 1000, 500)
    check.answered(0, sent, expected)
    return check.counted(0, 1000 + prompt, 500 + cached)


@pytest.mark.parametrize(
    ("sent", "expected", "prompt", "cached", "share"),
    [
        (2 * MANY, MANY, 2 * MANY, MANY, 1.0),
        (2 * MANY, MANY, 2 * MANY, MANY // 2, 0.5),
        (2 * MANY, MANY, 2 * MANY, 0, 0.0),
        # As much again came from others, who have their part of what was found.
        (2 * MANY, MANY, 4 * MANY, MANY, 0.5),
        # More was found than was expected.
        (2 * MANY, MANY, 2 * MANY, 2 * MANY, 1.0),
        # Too little to tell, and nothing new.
        (1000, 900, 1000, 0, None),
        (2 * MANY, MANY, 0, 0, None),
    ],
)
def test_the_share_that_was_found(
    sent: float, expected: float, prompt: int, cached: int, share: float | None
) -> None:
    found = checked(sent, expected, prompt, cached)
    assert found == (None if share is None else pytest.approx(share))


def test_engines_that_never_find_anything_are_not_judged_by_it() -> None:
    check = CacheCheck()
    assert check.counted(0, 1000, 0) is None
    check.answered(0, MANY, MANY)
    assert check.counted(0, 1000 + MANY, 0) is None
    assert not check.counts(0)
    assert check.share is None


def test_a_restart_begins_anew() -> None:
    check = CacheCheck()
    check.counted(0, 10 * MANY, 5 * MANY)
    check.answered(0, MANY, MANY)
    assert check.restarted(0, 100, 50)
    assert check.counted(0, 100, 50) is None
    assert check.counted(0, 100 + MANY, 50 + MANY) is None, "nothing is expected of the new process yet"
    check.forget(0)
    assert not check.counts(0)


def turns(picker: Picker, now: float, count: int, begin: int = 0) -> float:
    """Prompts of eight blocks that all begin alike, each answered after half a second."""
    for number in range(begin, begin + count):
        line_up(picker, "a", now)
        picked = picker.pick(GATEWAY, ask(f"r{number}", tokens=4096, blocks=tuple(range(8))), now)
        picker.answered(f"r{number}", now + 0.5, picked.addresses[0])
        now += 1.0
    return now


def trust(picker: Picker) -> float:
    slot = picker.book.get("a")
    assert slot is not None
    return picker.known.prefixes.trust(slot)


def test_the_engines_own_count_corrects_what_is_expected_to_be_cached() -> None:
    picker = picker_of()
    line_up(picker, "a")
    picker.computed("a", MODEL, 4096, 100, 0.0, 0.0, 0.0)
    now = turns(picker, 0.0, 1)
    before = trust(picker)
    now = turns(picker, now, 12, 1)
    assert trust(picker) == before == 1.0, "first tokens say nothing where the engine counts"
    picker.computed("a", MODEL, 4096 + 13 * 4096, 100, 0.0, now, now)
    assert trust(picker) == pytest.approx(0.7)
    assert picker.known.cache_check.share == pytest.approx(0.0)
    now = turns(picker, now, 12, 20)
    picker.computed("a", MODEL, 4096 + 25 * 4096, 100 + 12 * 4096, 0.0, now, now)
    assert trust(picker) == pytest.approx(0.79, abs=0.02)


def test_a_new_engine_process_holds_nothing() -> None:
    picker = picker_of()
    line_up(picker, "a")
    picker.computed("a", MODEL, 4096, 1024, 0.0, 0.0, 0.0)
    now = turns(picker, 0.0, 2)
    line_up(picker, "a", now)
    picker.computed("a", MODEL, 10, 5, 0.0, now, now)
    picker.pick(GATEWAY, ask("after", tokens=4096, blocks=tuple(range(8))), now + 0.1)
    view = picker.recent.view("after", now)
    assert view is not None
    assert view.candidates[0].cached_tokens == 0.0


def test_a_new_engine_process_holds_nothing_of_a_session_either() -> None:
    """Nothing but the header names what belongs together; no blocks are named."""
    picker = picker_of()
    line_up(picker, "ab")
    picker.computed("b", MODEL, 4096, 1024, 0.0, 0.0, 0.0)

    def grows(number: int, now: float) -> tuple[Outcome, float]:
        line_up(picker, "ab", now, rtt_s=[0.0, 0.3])
        pick = picker.pick(GATEWAY, ask(f"r{number}", session="s", tokens=4000 + number), now)
        picker.answered(f"r{number}", now + 0.4, "b:80")
        view = picker.recent.view(f"r{number}", now)
        assert view is not None
        return pick.outcome, {each.cell: each.cached_tokens for each in view.candidates}["b"]

    grows(1, 0.0)
    assert grows(2, 1.0) == (Outcome.AFFINITY, 4001.0)
    picker.computed("b", MODEL, 10, 0, 0.0, 2.0, 2.0)
    assert grows(3, 2.5) == (Outcome.NAMED, 0.0)
    # It was answered by the new process.
    assert grows(4, 3.5) == (Outcome.AFFINITY, 4003.0)


def test_the_cell_that_holds_the_most_is_preferred_and_the_cheapest_of_those() -> None:
    cost = np.array([3.0, 2.0, 1.0, 1.5])
    assert fullest(np.array([0.0, 512.0, 0.0, 512.0]), cost) == (3,)
    assert fullest(np.full(4, 512.0), cost) == ()


@pytest.mark.parametrize(("balance", "cell"), [(0.0, "b"), (1.0, "a")])
def test_a_prefix_goes_where_it_is_held_within_the_balance(balance: float, cell: str) -> None:
    picker = picker_of(balance=balance)
    line_up(picker, "ab")
    blocks = tuple(range(4))
    first = picker.pick(GATEWAY, ask("one", tokens=8000, blocks=blocks), 0.0)
    held = first.cells[0]
    picker.answered("one", 1.0, first.addresses[0])
    # What waits there costs more than the prefix saves.
    slot = picker.book.get(held)
    assert slot is not None
    picker.told(held, MODEL, 6.0, 2.0, 1.0, 1.0)
    again = picker.pick(GATEWAY, ask("two", tokens=8000, blocks=(*blocks, 9)), 1.0)
    assert (again.cells[0] == held) == (cell == "a")


def test_a_stretch_with_a_queue_tells_a_speed() -> None:
    throughput = Throughput()
    assert throughput.read(0, 0.0, 1000, True) is None
    assert throughput.read(0, 0.5, 1000 + STRETCH_TOKENS - 1, True) is None
    assert throughput.read(0, 1.0, 1000 + STRETCH_TOKENS, True) == (1.0, STRETCH_TOKENS)
    assert throughput.read(0, 2.0, 1000 + 3 * STRETCH_TOKENS, True) == (1.0, 2 * STRETCH_TOKENS)


@pytest.mark.parametrize("broken", [(0.5, 3000, False), (0.5, 10, True)])
def test_a_stretch_ends_where_nobody_waits_and_where_the_engine_is_new(
    broken: tuple[float, int, bool],
) -> None:
    throughput = Throughput()
    throughput.read(0, 0.0, 1000, True)
    assert throughput.read(0, *broken) is None
    at, tokens = (0.5, 10) if broken[2] else (1.0, 5000)
    assert throughput.read(0, 1.0, tokens if broken[2] else 5000, True) is None
    assert throughput.read(0, 2.0, tokens + STRETCH_TOKENS, True) == (2.0 - at, STRETCH_TOKENS)


def test_what_a_prompt_finds_is_not_computed_though_it_is_counted_before_the_prompt() -> None:
    """Of each prompt nine tenths are found."""
    throughput, size = Throughput(), STRETCH_TOKENS
    done = found = 0
    seconds = tokens = 0.0
    throughput.read(0, 0.5, 0, True)
    for turn in range(1, 41):
        found += size - size // 10
        for at, prompt in ((turn, done), (turn + 0.5, done + size)):
            stretch = throughput.read(0, at, prompt, True, found)
            seconds, tokens = (a + b for a, b in zip((seconds, tokens), stretch or (0, 0), strict=True))
        done += size
    assert tokens / seconds == pytest.approx(size / 10, rel=0.15)


def test_a_pool_that_does_not_stream_learns_from_its_engines_queues() -> None:
    picker = picker_of()
    line_up(picker, "ab")
    slot = picker.book.get("a")
    assert slot is not None
    begun = picker.known.learner.rates(slot).s_per_token
    for step in range(60):
        now = step * 0.5
        picker.computed("a", MODEL, step * 1000, 0, 3.0, now, now)
    learned = picker.known.learner.rates(slot).s_per_token
    assert begun == pytest.approx(1 / 8000)
    assert learned == pytest.approx(1 / 2000, rel=0.25)


def test_where_first_tokens_are_seen_they_are_what_is_learned_from() -> None:
    learner = Learner(8000.0)
    learner.begin(0, MODEL, 1.0, 0.0)
    picker = picker_of()
    line_up(picker, "a")
    picked = picker.pick(GATEWAY, ask("one"), 0.0)
    picker.answered("one", 0.2, picked.addresses[0])
    slot = picker.book.get("a")
    assert slot is not None
    before = picker.known.learner.rates(slot)
    for step in range(20):
        picker.computed("a", MODEL, step * 1000, 0, 3.0, step * 0.5, step * 0.5)
    assert picker.known.learner.rates(slot) == before
