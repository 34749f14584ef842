"""How long a probe waits: from the last sign of life, and in no one's favour."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headrace_agent.collectors.app.health.probe import HealthProbe
from headrace_agent.collectors.app.health.state import Change, EngineHealth
from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.http.errors import CallError
from headrace_agent.collectors.readings import EngineState
from tests.support.clock import FakeClock

PATIENCE_S = 2.0


class FakeLine:
    """A connection whose engine answers when the test says so."""

    used = True

    def __init__(self) -> None:
        self.asked = 0
        self.answers: list[Answer | CallError] = []
        self.closed = False

    def ready(self) -> bool:
        return not self.closed

    def ask(self, request: bytes, limit: int) -> None:
        self.asked += 1

    def hear(self) -> Answer | CallError | None:
        return self.answers.pop(0) if self.answers else None

    def close(self) -> None:
        self.closed = True


class FakeClient:
    """Hands out one line after the other."""

    def __init__(self) -> None:
        self.lines: list[FakeLine] = []
        self.dialled = asyncio.Event()

    def request(self, method: str, path: str) -> bytes:
        return f"{method} {path}".encode()

    def unlock(self, path: str, status: int) -> bool:
        return False

    async def open_line(self) -> FakeLine:
        self.lines.append(FakeLine())
        self.dialled.set()
        return self.lines[-1]


class FakeRounds:
    """Rounds that the test calls."""

    def __init__(self) -> None:
        self.hurried = 0

    def join(self, member: HealthProbe) -> None:
        member.ask(1000.0)

    def leave(self, member: HealthProbe) -> None: ...

    def hurry(self, member: HealthProbe) -> None:
        self.hurried += 1


class Bench:
    """A probe, its engine, and the time."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.health = EngineHealth(PATIENCE_S)
        self.client = FakeClient()
        self.rounds = FakeRounds()
        self.changes: list[tuple[float, EngineState]] = []
        self.probe = HealthProbe(
            self.client,  # type: ignore[arg-type]
            self.health,
            self.rounds,  # type: ignore[arg-type]
            PATIENCE_S,
            self.clock,
            self._took,
        )

    def _took(self, change: Change | None) -> None:
        if change is not None:
            self.changes.append((self.clock.now(), change.state))

    @property
    def line(self) -> FakeLine:
        return self.client.lines[-1]

    def look(self, at: float) -> float | None:
        self.clock.advance(at - self.clock.now())
        return self.probe.listen(at)

    def ask(self, at: float) -> None:
        self.clock.advance(at - self.clock.now())
        self.probe.ask(at)

    def answer(self, at: float, status: int = 200) -> None:
        self.line.answers.append(Answer(status, b""))
        self.look(at)

    def serve(self, at: float) -> None:
        """A whole question and answer, as an engine that is well gives it."""
        self.ask(at)
        self.answer(at + 0.015)
        self.health.begin(at)
        self.health.answered(self.health.life, "answered", at)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    task = asyncio.create_task(made.probe.run(), name="probe under test")
    await made.client.dialled.wait()
    made.answer(1000.001)
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_hang_is_told_two_seconds_after_the_last_sign_of_life(bench: Bench) -> None:
    """It may have begun right after the answer, before the next question."""
    bench.serve(1000.1)
    bench.ask(1000.2)
    due = bench.look(1000.215)
    assert due == pytest.approx(1000.1 + PATIENCE_S)
    bench.look(1002.0)
    assert bench.health.state is EngineState.SERVING
    bench.look(1002.1)
    assert bench.changes[-1] == (pytest.approx(1002.1), EngineState.HUNG)


async def test_an_engine_that_takes_its_time_and_answers_is_not_hung(bench: Bench) -> None:
    """Each answer takes almost as long as it may, again and again."""
    bench.serve(1000.1)
    at = 1000.2
    for _ in range(5):
        bench.ask(at)
        for look in (0.5, 1.0, 1.5, 1.7):
            bench.look(at + look)
        bench.answer(at + 1.75)
        at += 1.8
    assert bench.health.state is EngineState.SERVING


async def test_what_an_answer_took_is_no_silence(bench: Bench) -> None:
    """The engine was there all the time until it answered."""
    bench.serve(1000.1)
    bench.ask(1000.2)
    bench.look(1000.55)
    bench.answer(1000.6)
    bench.ask(1000.65)
    assert bench.look(1002.4) == pytest.approx(1000.55 + PATIENCE_S)


async def test_seldom_rounds_leave_the_whole_patience(bench: Bench) -> None:
    """Nobody asked meanwhile: that is no silence of the engine's."""
    bench.serve(1000.1)
    bench.ask(1010.1)
    assert bench.look(1010.2) == pytest.approx(1010.1 + PATIENCE_S)


async def test_a_process_that_slept_holds_its_lateness_against_nobody(bench: Bench) -> None:
    bench.serve(1000.1)
    bench.ask(1000.2)
    bench.look(1005.0)
    assert bench.health.state is EngineState.SERVING
    assert bench.line.closed, "the answer may lie unread on it, and is not taken for the next one's"


async def test_the_first_question_has_the_whole_patience() -> None:
    bench = Bench()
    task = asyncio.create_task(bench.probe.run(), name="probe under test")
    await bench.client.dialled.wait()
    assert bench.look(1001.0) == pytest.approx(1000.0 + PATIENCE_S)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_new_path_is_asked_from_the_next_question_on(bench: Bench) -> None:
    bench.probe.aim("/v2/health/ready")
    bench.health.begin(1000.0)
    bench.ask(1000.2)
    bench.answer(1000.215, status=503)
    assert bench.health.life == 1
