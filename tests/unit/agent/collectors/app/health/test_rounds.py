"""Rounds: everyone is asked at the same moments, and looked at again while an answer is open."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.app.health.rounds import FIRST_LOOK_S, LONGEST_LOOK_S, Rounds
from tests.support.clock import FakeClock

INTERVAL_S = 0.1


class Probe:
    """Notes when it is called; an answer comes at `answers_at`."""

    def __init__(self, answer_s: float | None = 0.0, patience_s: float = 2.0) -> None:
        self.answer_s = answer_s
        self.patience_s = patience_s
        self.asked: list[float] = []
        self.looked: list[float] = []
        self.open = False

    def ask(self, now: float) -> None:
        if not self.open:
            self.asked.append(now)
            self.open = True

    def listen(self, now: float) -> float | None:
        if not self.open:
            return None
        self.looked.append(now)
        answer_s = self.patience_s if self.answer_s is None else self.answer_s
        self.open = now < self.asked[-1] + answer_s
        return self.asked[-1] + self.patience_s if self.open else None


class Loop:
    """Stands in for the event loop's timers: at most one, and time that goes where it points."""

    def __init__(self, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = clock
        self.timer: Timer | None = None
        monkeypatch.setattr(
            "headrace_agent.collectors.app.health.rounds.asyncio.get_running_loop", lambda: self
        )

    def call_later(self, delay: float, call: object) -> Timer:
        assert self.timer is None or self.timer.cancelled, "one timer for all"
        self.timer = Timer(self.clock.now() + delay, call)
        return self.timer

    def run_until(self, end: float) -> None:
        while self.timer is not None and not self.timer.cancelled and self.timer.at <= end:
            timer, self.timer = self.timer, None
            self.clock.advance(max(0.0, timer.at - self.clock.now()))
            timer.call()  # type: ignore[operator]
        self.clock.advance(max(0.0, end - self.clock.now()))


class Timer:
    def __init__(self, at: float, call: object) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(FakeClock(1000.03), monkeypatch)


def test_all_members_are_asked_together_on_the_grid(loop: Loop) -> None:
    rounds = Rounds(INTERVAL_S, loop.clock)
    one, two = Probe(), Probe()
    rounds.join(one)
    assert one.asked == [1000.03], "the first question is not waited for"
    loop.run_until(1000.05)
    rounds.join(two)
    loop.run_until(1001.0)
    assert one.asked[1:] == two.asked[1:]
    assert one.asked[1:9] == pytest.approx([1000.1 + 0.1 * step for step in range(8)], abs=1e-6)


def test_a_quick_answer_is_looked_for_once(loop: Loop) -> None:
    rounds, probe = Rounds(INTERVAL_S, loop.clock), Probe()
    rounds.join(probe)
    loop.run_until(1001.0)
    assert len(probe.looked) <= len(probe.asked)
    assert probe.looked[0] - probe.asked[0] == pytest.approx(FIRST_LOOK_S)


def test_a_late_answer_is_looked_for_again_and_again_within_an_interval(loop: Loop) -> None:
    rounds, probe = Rounds(INTERVAL_S, loop.clock), Probe(answer_s=0.35)
    rounds.join(probe)
    loop.run_until(1002.0)
    gaps = [later - earlier for earlier, later in zip(probe.looked, probe.looked[1:], strict=False)]
    assert max(gaps) <= LONGEST_LOOK_S + FIRST_LOOK_S + 1e-9
    assert all(later - earlier >= 0.35 for earlier, later in zip(probe.asked, probe.asked[1:], strict=False))


@pytest.mark.parametrize("interval_s", [0.1, 10.0])
def test_the_end_of_patience_is_not_missed(loop: Loop, interval_s: float) -> None:
    """However seldom the rounds: an engine that hangs is told after its patience."""
    rounds, probe = Rounds(interval_s, loop.clock), Probe(answer_s=None, patience_s=2.0)
    rounds.join(probe)
    loop.run_until(1002.2)
    assert any(probe.asked[0] + 2.0 <= at <= probe.asked[0] + 2.001 for at in probe.looked)


def test_a_member_in_a_hurry_is_asked_and_looked_at_without_a_round(loop: Loop) -> None:
    rounds, probe = Rounds(10.0, loop.clock), Probe(answer_s=0.004)
    rounds.join(probe)
    loop.run_until(1000.5)
    asked, looked = len(probe.asked), len(probe.looked)
    rounds.hurry(probe)
    assert probe.asked[asked:] == [1000.5]
    loop.run_until(1000.51)
    assert probe.looked[looked] - 1000.5 <= 0.0011
    assert not probe.open, "an answer of some milliseconds is heard within as many"
    loop.run_until(1012.0)
    assert len(probe.asked) == asked + 2, "and the rounds go on as before"


def test_a_hurry_hears_what_was_answered_before_it_asks_again(loop: Loop) -> None:
    rounds, probe = Rounds(10.0, loop.clock), Probe(answer_s=0.5, patience_s=30)
    rounds.join(probe)
    loop.clock.advance(1.0)
    rounds.hurry(probe)
    assert probe.looked == [loop.clock.now()]
    assert len(probe.asked) == 2


def test_a_member_that_left_is_left_alone_and_the_last_one_stops_the_rounds(loop: Loop) -> None:
    rounds, one, two = Rounds(INTERVAL_S, loop.clock), Probe(), Probe()
    rounds.join(one)
    rounds.join(two)
    rounds.leave(one)
    loop.run_until(1000.5)
    assert len(one.asked) == 1
    assert len(two.asked) > 3
    rounds.leave(two)
    assert loop.timer is None or loop.timer.cancelled
    rounds.join(one)
    loop.run_until(1001.0)
    assert len(one.asked) > 4


def test_a_member_that_raises_does_not_end_the_rounds(loop: Loop) -> None:
    rounds, good, bad = Rounds(INTERVAL_S, loop.clock), Probe(), Probe()
    rounds.join(good)
    rounds.join(bad)

    def break_down(now: float) -> None:
        raise RuntimeError("broken")

    bad.ask = break_down  # type: ignore[method-assign]
    for _ in range(20):
        try:
            loop.run_until(loop.clock.now() + 0.1)
        except RuntimeError:
            continue
    assert len(good.asked) > 10
