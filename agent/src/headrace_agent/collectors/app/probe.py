"""The health probe: one question at a time, each answer handed on as evidence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace_agent.collectors.app.client import (
    AnswerError,
    CallError,
    EngineClient,
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
        self._settings = settings
        self._clock = clock
        self._took = took

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            began = self._clock.now()
            self._took(await self._probe(began))
            spent = self._clock.now() - began
            await asyncio.sleep(max(0.0, self._settings.probe_interval_s - spent))

    async def _probe(self, began: float) -> Change | None:
        try:
            answer = await self._client.get("/health", self._settings.hung_after_s, MAX_HEALTH_BYTES)
        except CallError as error:
            return self._failed(error, began)
        return self._health.health(answer.status, self._clock.now())

    def _failed(self, error: CallError, began: float) -> Change | None:
        now, cause = self._clock.now(), str(error)
        if isinstance(error, RefusedError):
            return self._health.refused(cause, now)
        if isinstance(error, SilentError):
            if overslept(now - began, self._settings.hung_after_s):
                return None
            return self._health.silent(cause, now)
        if isinstance(error, UnreachableError):
            return self._health.unreachable(cause, now)
        if isinstance(error, AnswerError):
            return self._health.broken(f"GET /health: {cause}", now)
        return self._health.broken(cause, now)


def overslept(waited_s: float, timeout_s: float) -> bool:
    """True where this process slept through a time-out, so that the answer may lie unread."""
    return waited_s > timeout_s + _OWN_LATENESS_S
