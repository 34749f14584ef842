"""The simulator's cell and the simulated cell of live runs answer at the same times."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from headrace_lab.cell.driver import EngineDriver
from headrace_lab.cell.faults import FaultState
from headrace_lab.engine import Engine, Finish, Output, Request
from headrace_lab.engine.profiles import Profile, profile
from headrace_lab.load.arrivals import Arrival
from headrace_lab.sim.calendar import Calendar, VirtualClock
from headrace_lab.sim.cells import SimCell
from headrace_lab.sim.jobs import Job
from tests.simulation.whole_lab.worlds import fleet

QUIET = 0.0
SENT = ((0.0, 512, 40), (3.0, 700, 20), (3.05, 4000, 30), (3.9, 100, 60), (4.0, 100, 5))


def quiet_profile() -> Profile:
    made = profile("rtx-pro-6000", "70b-awq")
    return dataclasses.replace(made, engine=dataclasses.replace(made.engine, step_jitter=QUIET))


class Listener:
    """Hears a simulated cell."""

    def __init__(self) -> None:
        self.first: dict[int, float] = {}
        self.over: dict[int, float] = {}

    def first_token(self, now: float, job: Job) -> None:
        self.first[job.arrival.id] = now - job.sent_at

    def ended(self, now: float, job: Job, status: int, broken: bool) -> None:
        assert (status, broken) == (200, False)
        self.over[job.arrival.id] = now - job.sent_at


def simulated() -> tuple[dict[int, float], dict[int, float]]:
    calendar, listener = Calendar(VirtualClock()), Listener()
    begin = calendar.clock.now()
    (plan,) = fleet(1).plans
    cell = SimCell(plan, quiet_profile(), calendar, listener, seed=1)
    for number, (at, prompt, output) in enumerate(SENT):
        job = Job(Arrival(number, at, "short", prompt, output), begin + at, 4 * prompt)
        calendar.enter(begin + at, cell.arrive, job)
    calendar.run(begin + 60.0)
    return listener.first, listener.over


class Observer:
    def token(self, output: Output) -> None:
        return

    def finished(self, finish: Finish) -> None:
        return


async def real(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[int, float], dict[int, float]]:
    """The live cell's driver, whose sleeps move a clock on instead of taking time."""
    clock, yield_once = VirtualClock(), asyncio.sleep
    begin = clock.at
    wakes: list[tuple[float, asyncio.Event]] = []

    async def sleep(seconds: float) -> None:
        if seconds <= 0:
            await yield_once(0)
            return
        wake = (clock.at + seconds, asyncio.Event())
        wakes.append(wake)
        await wake[1].wait()

    monkeypatch.setattr("headrace_lab.cell.driver.asyncio.sleep", sleep)
    driver = EngineDriver(Engine(quiet_profile().engine, 1), clock, FaultState(), Observer())
    first: dict[int, float] = {}
    over: dict[int, float] = {}

    async def ask(number: int, at: float, prompt: int, output: int) -> None:
        await sleep(at)
        sent = clock.at
        ticket = driver.submit([Request(str(number), prompt, output)])
        async for _, token in ticket:
            if token.number == 1:
                first[number] = clock.at - sent
            if token.finish is not None:
                over[number] = clock.at - sent

    running = asyncio.create_task(driver.run(), name="engine")
    asks = [asyncio.create_task(ask(n, *sent), name=f"ask {n}") for n, sent in enumerate(SENT)]
    for _ in range(20_000):
        for _ in range(8):
            await yield_once(0)
        if all(task.done() for task in asks):
            break
        wakes.sort(key=lambda wake: wake[0])
        at, event = wakes.pop(0)
        clock.at = at
        event.set()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert clock.at > begin
    return first, over


async def test_first_tokens_and_ends_come_at_the_same_times(monkeypatch: pytest.MonkeyPatch) -> None:
    first, over = await real(monkeypatch)
    sim_first, sim_over = simulated()
    assert sim_first == pytest.approx(first, abs=1e-6)
    assert sim_over == pytest.approx(over, abs=1e-6)
    unloaded = quiet_profile().engine
    compute = 512 / unloaded.prefill_tokens_per_s + 512 * 256 * unloaded.attention_per_pair_s
    assert sim_first[0] == pytest.approx(compute)
