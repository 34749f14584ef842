"""What running requests generate tells whether a prompt is computed beside them."""

from __future__ import annotations

import math

import pytest

from headrace_controller.picker import cost
from headrace_controller.picker.picker import Picker
from headrace_controller.picker.stalls import HARDLY, LEAST_S, RISES, Stalls
from tests.unit.controller.picker.builders import GATEWAY, MODEL, ask, line_up, picker_of

BEAT_S = 0.5


class Engine:
    """Readings of an engine, one a beat."""

    def __init__(self) -> None:
        self.stalls = Stalls()
        self.at, self.generated = 0.0, 0
        self.stalls.read(0, 0.0, 0, 4)

    def beats(self, count: int, tokens: int, running: float = 4) -> float:
        """So many beats in each of which so many tokens are generated; how held up the last one was."""
        share = 0.0
        for _ in range(count):
            since, self.at = self.at, self.at + BEAT_S
            self.generated += tokens
            told, share = self.stalls.read(0, self.at, self.generated, running)
            assert told == since
        return share


@pytest.mark.parametrize(
    ("tokens", "share"), [(100, 0.0), (60, 0.0), (50, 0.0), (25, 0.5), (5, 0.9), (0, 1.0)]
)
def test_answers_that_hardly_grow_are_held_up(tokens: int, share: float) -> None:
    assert HARDLY == 0.5
    engine = Engine()
    assert engine.beats(3, 100) == 0.0
    assert engine.beats(1, tokens) == pytest.approx(share, abs=0.03)


def test_it_is_the_speed_of_a_request_that_counts() -> None:
    engine = Engine()
    engine.beats(3, 100, running=4)
    engine.beats(1, 60, running=2)
    assert engine.beats(1, 50, running=2) == 0.0
    assert engine.beats(1, 0, running=0) == 0.0, "nobody is there to be held up"


def test_one_odd_reading_makes_no_other_speed_the_usual_one() -> None:
    engine = Engine()
    engine.beats(5, 100)
    # Many requests came and went between two readings.
    engine.beats(1, 10_000)
    assert engine.beats(1, 100) == 0.0
    assert RISES * HARDLY < 1.0


def test_a_slower_engine_is_the_usual_one_in_the_end() -> None:
    engine = Engine()
    engine.beats(5, 100)
    assert engine.beats(1, 20) > 0.5
    assert engine.beats(250, 20) == 0.0


def test_what_is_not_known_holds_nobody_up() -> None:
    stalls = Stalls()
    assert stalls.read(0, 0.0, 100, 4) == (0.0, 0.0)
    assert stalls.read(0, BEAT_S, 200, math.nan) == (0.0, 0.0)
    assert stalls.read(0, 2 * BEAT_S, 200, 4) == (BEAT_S, 0.0)
    assert stalls.read(0, 3 * BEAT_S, 300, 4)[1] == 0.0
    assert stalls.read(0, 3 * BEAT_S + LEAST_S / 2, 300, 4) == (3 * BEAT_S, 0.0), "too close to tell"
    assert stalls.read(0, 4 * BEAT_S, 10, 4) == (4 * BEAT_S, 0.0), "a new process"
    stalls.forget(0)
    assert stalls.read(0, 5 * BEAT_S, 10, 4) == (5 * BEAT_S, 0.0)


def others(picker: Picker) -> float:
    slot = picker.book.get("a")
    assert slot is not None
    return float(picker.book.table[slot, cost.OTHERS])


def test_a_prompt_of_our_own_explains_it() -> None:
    """One of ours was computed since the engine was read last, so it need not be another's."""
    picker = picker_of()
    line_up(picker, "a")
    for beat in range(4):
        at = 1.0 + BEAT_S * beat
        picker.told("a", MODEL, 4.0, 0.0, at, at, 100 * beat)
    line_up(picker, "a", 2.6)
    picker.pick(GATEWAY, ask("r"), 2.6)
    picker.answered("r", 2.9, "a:80")
    picker.told("a", MODEL, 5.0, 0.0, 3.0, 3.0, 300)
    assert others(picker) == 0.0
    picker.told("a", MODEL, 5.0, 0.0, 3.5, 3.5, 300)
    assert others(picker) == picker.known.sizes.met_tokens(MODEL)
