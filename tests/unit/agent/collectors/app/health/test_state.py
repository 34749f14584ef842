"""What an engine's state follows from, as tables of evidence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.app.health.state import Change, EngineHealth
from headrace_agent.collectors.readings import EngineState
from tests.support.clock import FakeClock

Step = Callable[[EngineHealth, float], Change | None]

HUNG_AFTER_S = 2.0


def _awake(health: EngineHealth, _: float) -> Change | None:
    health.awake()
    return None


STEPS: dict[str, Step] = {
    "200": lambda h, now: h.health(200, now),
    "503": lambda h, now: h.health(503, now),
    "refused": lambda h, now: h.refused("connection refused", now),
    "silent": lambda h, now: h.silent("no answer", now),
    "broken": lambda h, now: h.broken("closed", now),
    "unreachable": lambda h, now: h.unreachable("no route", now),
    "connected": lambda h, now: h.connected(now),
    "adopt": lambda h, now: h.adopt(now - 500, now),
    "begin": lambda h, now: h.begin(now),
    "answered": lambda h, now: h.answered(h.life, "answered", now),
    "asleep": lambda h, now: h.asleep(now),
    "awake": _awake,
    "ended": lambda h, now: h.ended("its server ended", now),
    "stuck": lambda h, now: h.stuck(h.life, "nothing moves", now),
    "unstuck": lambda h, now: h.unstuck("it moves", now),
}


def run(steps: str, step_s: float = 0.1) -> tuple[EngineHealth, list[str]]:
    """Apply the named steps in turn; the health at the end and the states it went through."""
    health, clock, states = EngineHealth(HUNG_AFTER_S), FakeClock(), []
    for name in steps.split():
        change = STEPS[name](health, clock.advance(step_s))
        if change is not None:
            assert change.cause
            assert change.state is health.state
            states.append(change.state.value)
    return health, states


UP = "200 begin answered"


@pytest.mark.parametrize(
    ("steps", "states"),
    [
        # First sight.
        ("refused refused", "down"),
        ("503 503", "loading"),
        ("silent", "loading"),
        ("200", ""),
        ("200 begin", "loading"),
        ("200 begin answered 200", "loading serving"),
        ("200 adopt 200", "serving"),
        # What was seen unhealthy or gone has nothing to be adopted for.
        ("503 200 adopt", "loading"),
        ("refused 200 adopt", "down loading"),
        # A completion counts only of a healthy engine.
        ("503 answered", "loading"),
        # Death, and what follows it.
        (f"{UP} refused refused", "loading serving down"),
        (f"{UP} 503 503", "loading serving down"),
        (f"{UP} 503 refused", "loading serving down"),
        (f"{UP} refused connected connected", "loading serving down loading"),
        (f"{UP} refused 503 503", "loading serving down loading"),
        (f"{UP} refused silent", "loading serving down loading"),
        (f"{UP} refused 200 answered", "loading serving down loading serving"),
        (f"{UP} 503 200 answered", "loading serving down loading serving"),
        (f"{UP} refused 503 refused", "loading serving down loading down"),
        # A connection that ends without an answer: once is chance.
        (f"{UP} broken 200 broken", "loading serving"),
        (f"{UP} broken broken", "loading serving down"),
        # A server's end is a death, whoever accepts connections or answers after it.
        (f"{UP} ended 200 200", "loading serving down loading"),
        (f"{UP} ended connected 503 200 answered", "loading serving down loading serving"),
        (f"{UP} ended silent", "loading serving down loading"),
        (f"{UP} ended refused ended", "loading serving down"),
        (f"{UP} silent ended", "loading serving hung down"),
        ("503 ended 200 answered", "loading down loading serving"),
        # Before anything is known it decides nothing: who answers next is met for the first time.
        ("ended", ""),
        ("200 ended adopt", ""),
        ("200 ended 200 adopt", "serving"),
        # Stuck: that the health endpoint says 200 is no recovery.
        (f"{UP} stuck 200 200", "loading serving hung"),
        (f"{UP} stuck 200 unstuck", "loading serving hung serving"),
        (f"{UP} stuck silent unstuck 200", "loading serving hung serving"),
        (f"{UP} stuck 503 200 answered", "loading serving hung down loading serving"),
        (f"{UP} stuck refused 200", "loading serving hung down loading"),
        (f"{UP} stuck asleep 200 awake answered", "loading serving hung sleeping serving"),
        ("200 begin stuck unstuck", "loading"),
        (f"{UP} unstuck", "loading serving"),
        (f"{UP} silent stuck 200", "loading serving hung serving"),
        # Hanging.
        (f"{UP} silent silent 200", "loading serving hung serving"),
        (f"{UP} silent refused", "loading serving hung down"),
        (f"{UP} silent 503", "loading serving hung down"),
        ("503 silent", "loading"),
        # Sleep.
        (f"{UP} asleep asleep 200 answered", "loading serving sleeping"),
        (f"{UP} asleep awake 200 answered", "loading serving sleeping serving"),
        ("200 asleep adopt begin", "sleeping"),
        (f"{UP} asleep refused 200 answered", "loading serving sleeping down loading serving"),
        (f"{UP} asleep silent 200", "loading serving sleeping hung sleeping"),
    ],
)
def test_evidence_gives_states(steps: str, states: str) -> None:
    assert run(steps)[1] == states.split()


def test_routes_may_fail_for_a_while() -> None:
    """A name server's hiccup is no engine's death; one that lasts is as good as one."""
    assert run(f"{UP} unreachable unreachable 200 unreachable", step_s=1.5)[1] == ["loading", "serving"]
    assert run(f"{UP} unreachable unreachable unreachable", step_s=1.5)[1][-1] == "down"


def test_answer_of_an_earlier_life_is_not_credited() -> None:
    """A completion asked of an engine that died since must not make its successor SERVING."""
    health, _ = run("200 begin")
    life = health.life
    health.refused("gone", 2000.0)
    health.health(200, 2001.0)
    assert health.answered(life, "late", 2002.0) is None
    assert health.state is EngineState.LOADING


def test_a_completion_that_an_earlier_life_left_unanswered_is_not_held_against_the_next() -> None:
    health, _ = run(UP)
    life = health.life
    for step in ["refused", "200", "answered"]:
        STEPS[step](health, 1100.0)
    assert health.stuck(life, "late", 1101.0) is None
    assert health.state is EngineState.SERVING


def test_serving_since() -> None:
    health, _ = run(UP)
    assert health.serving_since == pytest.approx(1000.3)
    health.health(200, 1005.0)
    assert health.serving_since == pytest.approx(1000.3)
    health.silent("no answer", 1010.0)
    assert health.serving_since is None
    health.health(200, 1020.0)
    assert health.serving_since == 1020.0


def test_adopted_engine_keeps_its_age() -> None:
    health, _ = run("200 adopt")
    assert health.serving_since == pytest.approx(1000.2 - 500)


def test_never_listening_says_so() -> None:
    change = EngineHealth(HUNG_AFTER_S).refused("connection to h:1 refused", 0.0)
    assert change == Change(EngineState.DOWN, "engine not listening: connection to h:1 refused")


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=40))
def test_invariants(names: list[str]) -> None:
    """SERVING rests on a healthy answer and a completion since the last doubt; changes are told once."""
    health, clock = EngineHealth(HUNG_AFTER_S), FakeClock()
    proven = False
    for name in names:
        before = health.state
        change = STEPS[name](health, clock.advance(0.5))
        assert (change is not None) == (health.state is not before)
        if name in ("refused", "503", "ended"):
            proven = False
            assert health.state is not EngineState.SERVING
        proven = proven or (name in ("answered", "adopt") and change is not None)
        if health.state is EngineState.SERVING:
            assert proven
            assert health.healthy
            assert health.serving_since is not None
        else:
            assert health.serving_since is None
            assert not (health.state is EngineState.DOWN and health.healthy)
