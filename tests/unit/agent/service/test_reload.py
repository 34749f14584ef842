"""Reloads: one for each time they are asked, whole or not at all, and never the end of the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.service import reload as reload_module
from headrace_agent.service.difference import FixedFieldError
from headrace_agent.service.reload import Load, Reloader
from headrace_agent.settings import AgentSettings
from headrace_shared.config import ConfigError, Problem
from headrace_shared.tls import TlsError
from tests.support.clock import FakeClock
from tests.unit.agent.service.test_watch import SETTINGS

OTHER = SETTINGS.model_copy(update={"goodbye_grace_s": 1.0})


class Subject:
    """Takes what it is given; `gate` holds it back in the middle of it."""

    def __init__(self) -> None:
        self.settings = SETTINGS
        self.applied: list[AgentSettings] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def apply(self, new: AgentSettings) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.applied.append(new)
        self.settings = new


class Desk:
    """A reloader at work, and what it told systemd."""

    def __init__(self, load: Load | None) -> None:
        self.asked = asyncio.Event()
        self.subject = Subject()
        self.mishaps = Mishaps()
        self.reloader = Reloader(load, self.asked, FakeClock(), self.mishaps)
        self.loads = 0

    async def done(self, **counts: int) -> None:
        """Wait for these outcomes."""
        async with asyncio.timeout(10):
            while {k: v for k, v in self.reloader.counts.items() if v} != counts:  # noqa: ASYNC110
                await asyncio.sleep(0.002)


@asynccontextmanager
async def reloading(load: Load | None) -> AsyncIterator[Desk]:
    desk = Desk(load)
    task = asyncio.create_task(desk.reloader.run(desk.subject, lambda: "fine"), name="reloader")
    try:
        yield desk
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(reload_module, "notify_reloading", lambda now: said.append(f"reloading {now}"))
    monkeypatch.setattr(reload_module, "notify_ready", said.append)
    return said


async def test_a_changed_file_is_applied_and_systemd_told(told: list[str]) -> None:
    async with reloading(lambda: OTHER) as desk:
        desk.asked.set()
        await desk.done(applied=1)
        desk.asked.set()
        await desk.done(applied=1, unchanged=1)
    assert desk.subject.applied == [OTHER]
    assert told == [
        "reloading 1000.0",
        "fine; last reload applied",
        "reloading 1000.0",
        "fine; last reload unchanged",
    ]


def raising(error: Exception) -> Callable[[], AgentSettings]:
    def load() -> AgentSettings:
        raise error

    return load


BAD_FILE = ConfigError("agent.yaml", [Problem(3, "cells[0].url", "bad"), Problem(9, "colour", "unknown key")])


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BAD_FILE, ["line 3: cells[0].url: bad", "line 9: colour: unknown key"]),
        (TlsError("controllers: tls.ca: /ca.pem: give a readable PEM file"), ["give a readable PEM file"]),
    ],
)
async def test_a_file_that_cannot_be_used_changes_nothing_and_all_is_said(
    told: list[str], error: Exception, words: list[str]
) -> None:
    with capture_logs() as logs:
        async with reloading(raising(error)) as desk:
            desk.asked.set()
            await desk.done(refused=1)
    assert desk.subject.applied == []
    (line,) = logs
    for each in words:
        assert each in " ".join(line["why"])
        assert each in desk.reloader.trouble
    assert told[-1] == "fine; last reload refused"


async def test_a_change_that_needs_a_restart_is_refused_and_a_good_one_clears_the_trouble(
    told: list[str],
) -> None:
    async with reloading(lambda: OTHER) as desk:
        desk.subject.error = FixedFieldError("node: restart the agent")
        desk.asked.set()
        await desk.done(refused=1)
        assert desk.reloader.trouble == "node: restart the agent"
        desk.subject.error = None
        desk.asked.set()
        await desk.done(refused=1, applied=1)
        assert desk.reloader.trouble == ""


async def test_a_fault_of_the_agents_own_is_contained(told: list[str]) -> None:
    async with reloading(lambda: OTHER) as desk:
        desk.subject.error = KeyError("x")
        desk.asked.set()
        await desk.done(failed=1)
        assert desk.mishaps.counts == {"reload": 1}
        desk.subject.error = None
        desk.asked.set()
        await desk.done(failed=1, applied=1)


async def test_what_is_asked_while_one_runs_is_one_more(told: list[str]) -> None:
    loads: list[int] = []

    def load() -> AgentSettings:
        loads.append(1)
        return SETTINGS.model_copy(update={"goodbye_grace_s": float(len(loads))})

    async with reloading(load) as desk:
        desk.subject.gate.clear()
        desk.asked.set()
        async with asyncio.timeout(10):
            while not loads:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        for _ in range(5):
            desk.asked.set()
        desk.subject.gate.set()
        await desk.done(applied=2)
        await asyncio.sleep(0.02)
    assert len(loads) == 2
    assert [each.goodbye_grace_s for each in desk.subject.applied] == [1.0, 2.0]


async def test_a_disk_that_does_not_answer_keeps_no_later_reload_waiting(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload_module, "LOAD_TIMEOUT_S", 0.05)
    held = asyncio.Event()

    async def hang(function: Any) -> AgentSettings:
        if not held.is_set():
            held.set()
            await asyncio.Event().wait()
        return OTHER

    monkeypatch.setattr(asyncio, "to_thread", hang)
    async with reloading(lambda: OTHER) as desk:
        desk.asked.set()
        await desk.done(refused=1)
        assert "could not be read within" in desk.reloader.trouble
        desk.asked.set()
        await desk.done(refused=1, applied=1)


async def test_without_a_file_nothing_happens(told: list[str]) -> None:
    async with reloading(None) as desk:
        desk.asked.set()
        await desk.done(unchanged=1)
    assert desk.subject.applied == []
