"""The book: what is pending where, and that nothing stays in it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from headrace_controller.picker import cost
from headrace_controller.picker.book import NOWHERE, SAME_READING_S, Book, Open
from headrace_controller.picker.rates import Rates

EXPIRY_S = 50.0


def book_of(*cells: str) -> Book:
    book = Book(EXPIRY_S)
    for cell in cells:
        book.set_rates(book.slot(cell, 0.0), Rates(0.02, 1e-4, 1e-4))
    return book


def pending(book: Book, slot: int = 0) -> float:
    return float(book.table[slot, cost.PENDING])


def send(book: Book, key: str, tokens: int = 1000, at: float = 0.0, slot: int = 0, **more: Any) -> None:
    book.send(key, Open(slot, "m", tokens, at, **more))
    book.check()


def test_a_first_token_takes_the_prompt_out_and_leaves_the_request_running() -> None:
    book = book_of("a")
    send(book, "r1")
    send(book, "r2", 500, at=0.1)
    assert (pending(book), book.table[0, cost.RUNNING]) == (1500, 2)
    assert book.answer("r1", 0.3, streams=True) is not None
    assert (pending(book), book.table[0, cost.RUNNING]) == (500, 2)
    # From now on the engine can be at the second one.
    assert book.table[0, [cost.HEAD, cost.SINCE]].tolist() == [500, 0.3]


def test_who_waits_for_a_first_token_is_told_from_who_answers() -> None:
    book = book_of("a")
    send(book, "r1")
    send(book, "r2", at=0.1)
    assert book.table[0, [cost.RUNNING, cost.WAITING]].tolist() == [2, 2]
    book.answer("r1", 0.3, streams=True)
    assert book.table[0, [cost.RUNNING, cost.WAITING]].tolist() == [2, 1]
    # Of ten in the engine four wait, of which one is ours, and one of theirs is computed.
    book.told(0, in_flight=10, waiting=4, read_at=0.4, met_tokens=800, now=0.5)
    assert book.table[0, [cost.RUNNING, cost.WAITING]].tolist() == [10, 1 + 4]
    book.end("r2", 0.6)
    book.told(0, in_flight=9, waiting=math.nan, read_at=0.7, met_tokens=800, now=0.8)
    assert book.table[0, [cost.RUNNING, cost.WAITING]].tolist() == [9, 0]
    book.check()


def test_an_answer_that_is_no_stream_ends_the_request() -> None:
    book = book_of("a")
    send(book, "r", due=0.5)
    book.settle(0.4)
    assert pending(book) == 1000
    book.settle(0.6)
    # Its prompt is computed by now, and nobody says so.
    assert (pending(book), *book.table[0, [cost.RUNNING, cost.WAITING]]) == (0, 1, 0)
    book.answer("r", 2.0, streams=False)
    assert (book.open_requests, *book.table[0, [cost.RUNNING, cost.WAITING]]) == (0, 0, 0)


def test_a_retry_moves_the_request_to_who_served_it() -> None:
    book = book_of("a", "b")
    send(book, "r")
    book.answer("r", 0.2, streams=True, slot=1)
    book.check()
    assert book.table[:2, cost.RUNNING].tolist() == [0, 1]
    assert book.table[:2, cost.WAITING].tolist() == [0, 0]
    assert pending(book) == 0


def test_a_request_left_to_the_gateway_counts_where_it_was_served() -> None:
    book = book_of("a")
    send(book, "r", slot=NOWHERE)
    assert (pending(book), book.open_requests) == (0, 1)
    book.answer("r", 0.2, streams=True, slot=0)
    assert book.table[0, cost.RUNNING] == 1


def test_decoding_ends_by_itself() -> None:
    book = book_of("a")
    send(book, "r", decode_s=3.0)
    book.answer("r", 1.0, streams=True)
    book.settle(3.9)
    assert book.table[0, cost.RUNNING] == 1
    book.settle(4.0)
    assert book.table[0, cost.RUNNING] == 0


def test_what_has_no_answer_runs_out_of_time() -> None:
    book = book_of("a")
    send(book, "r")
    book.settle(EXPIRY_S - 0.1)
    assert pending(book) == 1000
    book.settle(EXPIRY_S)
    assert (pending(book), book.open_requests, book.lost) == (0, 0, 1)
    assert book.answer("r", EXPIRY_S + 1, streams=True) is None


def test_settling_says_which_requests_ran_out_of_time() -> None:
    book = book_of("a")
    for number in range(3):
        send(book, f"r{number}", at=float(number))
    book.end("r1", 3.0)
    assert book.settle(EXPIRY_S - 0.1) == []
    assert book.settle(EXPIRY_S + 5.0) == ["r0", "r2"]
    assert book.settle(EXPIRY_S + 9.0) == []


def test_a_prompt_that_is_due_in_a_year_is_not_remembered_for_a_year() -> None:
    book = book_of("a")
    for number in range(10):
        send(book, f"r{number}", due=1e7)
        book.end(f"r{number}", 0.1)
    book.settle(EXPIRY_S)
    assert not book._due


def test_a_key_that_comes_again_replaces_the_request() -> None:
    book = book_of("a", "b")
    send(book, "r")
    send(book, "r", 300, at=1.0, slot=1)
    assert (pending(book, 0), pending(book, 1), book.open_requests) == (0, 300, 1)


def test_a_cell_that_goes_takes_its_requests_along_and_leaves_its_slot_clean() -> None:
    book = book_of("a")
    send(book, "r1")
    send(book, "r2", decode_s=5.0)
    book.answer("r2", 0.1, streams=True)
    assert book.forget("a") == 0
    assert book.forget("a") is None
    assert book.slot("b", 1.0) == 0
    book.check()
    book.settle(10.0)
    assert book.answer("r1", 10.0, streams=True, slot=0) is not None
    book.check()
    assert book.table[0, [cost.PENDING, cost.RUNNING]].tolist() == [0, 1]


def test_engines_say_what_others_sent() -> None:
    book = book_of("a")
    for number in range(3):
        send(book, f"r{number}", at=1.0)
    # Ours and seven more, of which six wait: one of ours runs, so at least four of theirs wait.
    book.told(0, 10, 6, read_at=2.0, met_tokens=800, now=2.1)
    assert book.table[0, [cost.OTHERS, cost.OTHERS_AT, cost.RUNNING]].tolist() == [4 * 800, 2.0, 10]
    # A restarted controller knows nothing but this.
    fresh = book_of("a")
    fresh.told(0, 10, 6, read_at=2.0, met_tokens=800, now=2.1)
    # Those six wait behind one that is computed.
    assert fresh.table[0, cost.OTHERS] == 7 * 800


@pytest.mark.parametrize(
    ("in_flight", "waiting", "computing", "prompts"),
    [
        (4, 0, 0.0, 0.0),
        (4, 0, 0.75, 0.75),
        (4, 2, 0.0, 3.0),
        (4, 2, 1.0, 3.0),
        # There is nobody besides them whose prompt it could be.
        (2, 2, 1.0, 2.0),
        (0, 0, 1.0, 0.0),
        (4, math.nan, 0.5, 0.5),
    ],
)
def test_a_prompt_of_others_that_is_computed_counts_too(
    in_flight: float, waiting: float, computing: float, prompts: float
) -> None:
    book = book_of("a")
    book.told(0, in_flight, waiting, read_at=2.0, met_tokens=800, now=2.1, computing=computing)
    assert book.table[0, cost.OTHERS] == prompts * 800
    send(book, "r", at=1.0)
    book.told(0, in_flight + 1, waiting, read_at=2.0, met_tokens=800, now=2.1, computing=computing)
    # It may be ours that is computed.
    assert book.table[0, cost.OTHERS] == (0 if math.isnan(waiting) else waiting) * 800


def test_what_was_sent_after_the_figures_were_read_is_added_to_them() -> None:
    book = book_of("a")
    send(book, "r1", at=1.0)
    send(book, "r2", at=3.0)
    book.told(0, 1, 0, read_at=2.0, met_tokens=800, now=3.1)
    assert book.table[0, [cost.OTHERS, cost.RUNNING]].tolist() == [0, 2]


def test_absent_figures_say_nothing() -> None:
    book = book_of("a")
    send(book, "r")
    before = book.table.copy()
    book.told(0, math.nan, math.nan, read_at=9.0, met_tokens=800, now=9.0)
    assert np.array_equal(book.table, before)
    book.told(0, 4, math.nan, read_at=9.0, met_tokens=800, now=9.0)
    assert book.table[0, [cost.OTHERS, cost.RUNNING]].tolist() == [0, 4]


@pytest.mark.parametrize(("times", "left"), [(1, 3000), (2, 1000)])
def test_requests_that_an_engine_twice_does_not_know_are_taken_out(times: int, left: int) -> None:
    book = book_of("a")
    for number in range(3):
        send(book, f"r{number}", at=float(number))
    for beat in range(times):
        book.told(0, 1, 0, read_at=10.0 + beat, met_tokens=800, now=10.0 + beat)
        book.check()
    assert pending(book) == left
    assert book.lost == (0 if times == 1 else 2)
    # They may still be answered, for it is the engine that may be wrong.
    assert book.answer("r0", 12.0, streams=True) is not None


def test_a_gauge_that_reads_zero_once_takes_nothing_out() -> None:
    book = book_of("a")
    send(book, "r")
    for read_at, in_flight in enumerate((0, 1, 0, 1), 10):
        book.told(0, in_flight, 0, read_at=read_at, met_tokens=800, now=read_at)
    assert pending(book) == 1000


def test_one_reading_that_is_told_with_each_beat_takes_nothing_out() -> None:
    """When it was taken is reckoned from when the beat came, and so is never quite the same."""
    book = book_of("a")
    send(book, "r")
    for beat, late in enumerate((0.0, 0.0, 0.003, SAME_READING_S / 2, -0.002)):
        book.told(0, 0, 0, read_at=10.0 + late, met_tokens=800, now=10.5 + beat / 2)
    assert (pending(book), book.lost) == (1000, 0)
    book.told(0, 0, 0, read_at=20.0, met_tokens=800, now=20.5)
    assert (pending(book), book.lost) == (0, 1)


def test_a_doubt_is_forgotten_with_its_cell() -> None:
    book = book_of("a")
    send(book, "r")
    book.told(0, 0, 0, read_at=10.0, met_tokens=800, now=10.0)
    book.forget("a")
    assert not book._short
    assert book.slot("b", 10.0) == 0
    send(book, "s", at=1.0)
    book.told(0, 0, 0, read_at=11.0, met_tokens=800, now=11.0)
    assert pending(book) == 1000


class Requests(RuleBasedStateMachine):
    """Any sequence of what can happen; at its end all requests have ended, and nothing is pending."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.book = book_of("a", "b", "c")
        self.now = 0.0
        self.sent = 0

    def slots(self) -> list[int]:
        return [NOWHERE, *self.book.cells().values()]

    @rule(target=keys, tokens=st.integers(1, 100_000), pick=st.integers(0, 9), streams=st.booleans(),
          again=st.booleans())  # fmt: skip
    def send(self, tokens: int, pick: int, streams: bool, again: bool) -> str:
        self.sent += not again
        slots = self.slots()
        due = None if streams else self.now + 1.0
        key = f"r{self.sent}"
        self.book.send(key, Open(slots[pick % len(slots)], "m", tokens, self.now, due=due, decode_s=2.0))
        return key

    @rule(key=consumes(keys), pick=st.none() | st.integers(0, 9), streams=st.booleans())
    def answer(self, key: str, pick: int | None, streams: bool) -> None:
        slots = self.slots()
        self.book.answer(key, self.now, streams, None if pick is None else slots[pick % len(slots)])

    @rule(key=consumes(keys))
    def end(self, key: str) -> None:
        self.book.end(key, self.now)

    @rule(seconds=st.floats(0, 60))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.book.settle(self.now)

    @rule(pick=st.integers(0, 9), in_flight=st.integers(0, 5) | st.just(math.nan), waiting=st.integers(0, 5),
          age=st.floats(0, 2))  # fmt: skip
    def tell(self, pick: int, in_flight: float, waiting: float, age: float) -> None:
        slots = self.slots()[1:]
        if slots:
            slot = slots[pick % len(slots)]
            self.book.told(slot, in_flight, waiting, self.now - age, 500.0, self.now)

    @rule(cell=st.sampled_from("abc"))
    def come_or_go(self, cell: str) -> None:
        if self.book.forget(cell) is None:
            self.book.set_rates(self.book.slot(cell, self.now), Rates(0.02, 1e-4, 1e-4))

    @invariant()
    def holds(self) -> None:
        self.book.check()

    def teardown(self) -> None:
        self.book.settle(self.now + EXPIRY_S + 1.0)
        self.book.check()
        assert self.book.open_requests == 0
        assert not self.book.table[:, [cost.PENDING, cost.HEAD]].any()
        for slot in self.book.cells().values():
            # What an engine itself said last stands until it says something else.
            self.book.told(slot, 0, 0, self.now + EXPIRY_S + 1.0, 500.0, self.now + EXPIRY_S + 1.0)
        assert not self.book.table[:, [cost.RUNNING, cost.WAITING]].any()


Requests.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestRequests = Requests.TestCase
