"""An engine that says that it is well while nothing moves is put to the test, seldom."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.app.health.state import Change, EngineHealth
from headrace_agent.collectors.app.health.stuck import ASK_AGAIN_S, STUCK_AFTER_S, StuckCheck
from headrace_agent.collectors.app.http.errors import AnswerError, CallError, SilentError
from headrace_agent.collectors.readings import EngineState
from tests.support.clock import FakeClock

SILENT = SilentError("POST /v1/completions was not answered within 30 s")


class Engine:
    """One that serves and may be frozen; `answer` is what a completion comes to, None for good."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.health = EngineHealth(2.0)
        self.frozen: float | None = None
        self.answer: CallError | None = None
        self.moves_when_asked = False
        self.asked: list[float] = []
        self.changes: list[Change] = []
        self.check = StuckCheck(self.health, lambda: self.frozen, self._ask, self._took, self.clock)
        self.health.health(200, 1000.0)
        self.health.begin(1000.0)
        self.health.answered(0, "answered", 1000.0)

    async def _ask(self) -> None:
        self.asked.append(self.clock.now())
        self.clock.advance(1.0 if self.answer is None else 30.0)
        if self.moves_when_asked:
            self.frozen = None
        if self.answer is not None:
            raise self.answer

    def _took(self, change: Change | None) -> None:
        if change is not None:
            self.changes.append(change)

    async def watch(self, seconds: float) -> None:
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            await self.check.check()
            self.clock.advance(1.0)


@pytest.fixture
def engine() -> Engine:
    return Engine()


async def test_one_that_moves_is_asked_nothing(engine: Engine) -> None:
    await engine.watch(300)
    assert engine.asked == []


async def test_one_that_stands_still_and_answers_nothing_is_hung(engine: Engine) -> None:
    engine.frozen, engine.answer = 1000.0, SILENT
    await engine.watch(60)
    assert engine.asked[0] - 1000.0 >= STUCK_AFTER_S
    assert engine.asked[0] - 1000.0 < STUCK_AFTER_S + 2
    assert engine.health.state is EngineState.HUNG
    assert engine.changes[-1].cause.startswith("nothing has moved for 4")
    assert str(SILENT) in engine.changes[-1].cause


async def test_one_that_answers_is_well_and_asked_once_a_minute_at_most(engine: Engine) -> None:
    """Figures stay frozen after a mass abort, though the engine is well."""
    engine.frozen = 1000.0
    await engine.watch(300)
    assert engine.health.state is EngineState.SERVING
    gaps = [later - earlier for earlier, later in zip(engine.asked, engine.asked[1:], strict=False)]
    assert 3 <= len(engine.asked) <= 5
    assert min(gaps) >= ASK_AGAIN_S


async def test_one_that_is_only_slow_is_not_hung(engine: Engine) -> None:
    """The completion waited behind others, and these moved."""
    engine.frozen, engine.answer, engine.moves_when_asked = 1000.0, SILENT, True
    await engine.watch(60)
    assert (len(engine.asked), engine.changes) == (1, [])


@pytest.mark.parametrize("answer", [AnswerError("POST /v1/completions answered 429")])
async def test_a_refusal_is_an_answer(engine: Engine, answer: CallError) -> None:
    engine.frozen, engine.answer = 1000.0, answer
    await engine.watch(60)
    assert engine.health.state is EngineState.SERVING


async def test_it_serves_again_once_it_answers(engine: Engine) -> None:
    engine.frozen, engine.answer = 1000.0, SILENT
    await engine.watch(60)
    engine.health.health(200, engine.clock.now())
    assert engine.health.state is EngineState.HUNG
    engine.answer = None
    await engine.watch(61)
    assert engine.health.state is EngineState.SERVING
    assert engine.changes[-1].cause == "a completion was answered"


async def test_it_serves_again_once_it_moves(engine: Engine) -> None:
    engine.frozen, engine.answer = 1000.0, SILENT
    await engine.watch(60)
    asked = len(engine.asked)
    engine.frozen = None
    await engine.watch(2)
    assert engine.health.state is EngineState.SERVING
    assert len(engine.asked) == asked


async def test_one_that_does_not_serve_is_asked_nothing(engine: Engine) -> None:
    engine.frozen = 1000.0
    engine.health.health(503, 1000.0)
    await engine.watch(120)
    assert engine.asked == []


async def test_one_that_died_meanwhile_is_not_called_hung(engine: Engine) -> None:
    engine.frozen, engine.answer = 1000.0, SILENT

    async def die_and_serve_again() -> None:
        engine.health.refused("gone", 1010.0)
        engine.health.health(200, 1011.0)
        engine.health.answered(engine.health.life, "answered", 1012.0)
        raise SILENT

    check = StuckCheck(engine.health, lambda: engine.frozen, die_and_serve_again, engine._took, engine.clock)
    engine.clock.advance(STUCK_AFTER_S)
    await check.check()
    assert engine.health.state is EngineState.SERVING
