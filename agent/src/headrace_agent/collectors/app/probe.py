"""The health probe: one question at a time, each answer handed on as evidence.

Eight engines are asked eighty times a second, which would be most of what the agent costs. So the
answers are taken in as they come, without a task or a timer for each question, and all engines of
a host are asked at the same moments, which wakes the agent once for all of them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from headrace_agent.collectors.app.answer import Answer
from headrace_agent.collectors.app.client import EngineClient
from headrace_agent.collectors.app.connection import Connection
from headrace_agent.collectors.app.errors import (
    CallError,
    ClosedError,
    RefusedError,
    SilentError,
    UnreachableError,
)
from headrace_agent.collectors.app.state import Change, EngineHealth
from headrace_agent.settings import EngineSettings
from headrace_shared.clock import Clock

MAX_HEALTH_BYTES = 64 * 1024
# Lateness of this process itself, above which a time-out says nothing about the engine.
_OWN_LATENESS_S = 0.25
_CALL = "GET /health"


class HealthProbe:
    """Asks an engine for its health every `probe_interval_s`, never twice at once.

    `took(change)` is called after each probe with the change that it made, or None.
    """

    def __init__(
        self,
        client: EngineClient,
        health: EngineHealth,
        settings: EngineSettings,
        clock: Clock,
        took: Callable[[Change | None], None],
    ) -> None:
        self._client = client
        self._health = health
        self._interval_s = settings.probe_interval_s
        self._patience_s = settings.hung_after_s
        self._clock = clock
        self._took = took
        self._request = client.request("GET", "/health")
        self._connection = Connection()
        self._waiting = False
        self._failure: Exception | None = None

    async def run(self) -> None:
        """Probe until cancelled."""
        self._waiting, self._failure = False, None
        try:
            while True:
                began = self._clock.now()
                await self._ask(began)
                await self._rest(began)
        finally:
            self._connection.close()

    async def _ask(self, began: float) -> None:
        """Put the question, over a new connection where there is none."""
        if not self._connection.open:
            try:
                async with asyncio.timeout(self._patience_s):
                    self._connection = await self._client.dial()
            except TimeoutError:
                self._fall_silent(began)
                return
            except CallError as error:
                self._took(self._failed(error))
                return
        self._waiting = True
        self._connection.ask(self._request, MAX_HEALTH_BYTES, self._hear)

    async def _rest(self, began: float) -> None:
        """Until the next question is due, and as long as the last one may still be answered."""
        due, patient_until = next_due(began, self._interval_s), began + self._patience_s
        while self._waiting or self._clock.now() < due:
            now = self._clock.now()
            if self._waiting and now >= patient_until:
                self._connection.close()
                self._waiting = False
                self._fall_silent(began)
                return
            wake = due if now < due else now + self._interval_s
            await asyncio.sleep((min(wake, patient_until) if self._waiting else wake) - now)
            if self._failure is not None:
                raise self._failure

    def _hear(self, answer: Answer | CallError) -> None:
        """Called by the event loop, which would only log what is raised here."""
        self._waiting = False
        try:
            if isinstance(answer, Answer):
                self._took(self._health.health(answer.status, self._clock.now()))
            elif not (isinstance(answer, ClosedError) and self._connection.used):
                self._took(self._failed(answer))
        except Exception as error:  # noqa: BLE001 - raised again in the task, which is watched over
            self._failure = error

    def _fall_silent(self, began: float) -> None:
        now = self._clock.now()
        if overslept(now - began, self._patience_s):
            return
        error = SilentError(f"{_CALL} was not answered within {self._patience_s:g} s")
        self._took(self._failed(error))

    def _failed(self, error: CallError) -> Change | None:
        now, cause = self._clock.now(), str(error)
        if isinstance(error, RefusedError):
            return self._health.refused(cause, now)
        if isinstance(error, SilentError):
            return self._health.silent(cause, now)
        if isinstance(error, UnreachableError):
            return self._health.unreachable(cause, now)
        return self._health.broken(f"{_CALL}: {cause}", now)


def next_due(began: float, interval_s: float) -> float:
    """When to ask again: on a grid that all probes of this interval share, so that they wake together.

    Not sooner than after half an interval.
    """
    return math.floor(began / interval_s + 1.5) * interval_s


def overslept(waited_s: float, timeout_s: float) -> bool:
    """True where this process slept through a time-out, so that the answer may lie unread."""
    return waited_s > timeout_s + _OWN_LATENESS_S
