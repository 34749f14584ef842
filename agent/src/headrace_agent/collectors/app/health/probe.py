"""The health probe: one question at a time, each answer taken as evidence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headrace_agent.collectors.app.health.rounds import Rounds
from headrace_agent.collectors.app.health.state import Change, EngineHealth
from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.errors import (
    CallError,
    ClosedError,
    RefusedError,
    SilentError,
    UnreachableError,
)
from headrace_agent.collectors.app.http.line import Line
from headrace_shared.clock import Clock

MAX_HEALTH_BYTES: Final = 64 * 1024
# Lateness of this process itself, above which a time-out says nothing about the engine.
_OWN_LATENESS_S: Final = 0.25
_CALL: Final = "GET /health"


class HealthProbe:
    """Asks an engine for its health in every round, never twice at once.

    An engine may take `patience_s` to answer. `took(change)` is called after each probe with the
    change that it made, or None.
    """

    def __init__(
        self,
        client: EngineClient,
        health: EngineHealth,
        rounds: Rounds,
        patience_s: float,
        clock: Clock,
        took: Callable[[Change | None], None],
    ) -> None:
        self._client = client
        self._health = health
        self._rounds = rounds
        self._patience_s = patience_s
        self._clock = clock
        self._took = took
        self._request = client.request("GET", "/health")
        self._line: Line | None = None
        self._began = 0.0
        self._waiting = False
        self._dialling = False
        self._wake = asyncio.Event()
        self._failure: Exception | None = None

    async def run(self) -> None:
        """Probe until cancelled."""
        self._waiting = self._dialling = False
        self._failure = None
        self._rounds.join(self)
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._failure is not None:
                    raise self._failure
                await self._dial()
        finally:
            self._rounds.leave(self)
            self._drop()

    def ask(self, now: float) -> None:
        """A round begins."""
        if self._waiting or self._dialling or self._failure is not None:
            return
        self._began = now
        try:
            self._put()
        except Exception as error:  # noqa: BLE001 - raised again in the task, which is watched over
            self._break(error)

    def listen(self, now: float) -> float | None:
        """Take in the answer if it is there."""
        if not self._waiting or self._line is None:
            return None
        try:
            answer = self._line.hear()
            if answer is not None:
                self._waiting = False
                self._judge(answer)
            elif now - self._began >= self._patience_s:
                self._waiting = False
                self._drop()
                self._fall_silent()
        except Exception as error:  # noqa: BLE001 - raised again in the task, which is watched over
            self._break(error)
        return self._began + self._patience_s if self._waiting else None

    def _break(self, error: Exception) -> None:
        self._waiting = False
        self._failure = error
        self._wake.set()

    def _put(self) -> None:
        """Put the question, over a new connection where there is none."""
        if self._line is None or not self._line.ready():
            self._drop()
            self._dialling = True
            self._wake.set()
            return
        self._waiting = True
        self._line.ask(self._request, MAX_HEALTH_BYTES)

    async def _dial(self) -> None:
        try:
            async with asyncio.timeout(max(0.0, self._began + self._patience_s - self._clock.now())):
                self._line = await self._client.open_line()
        except TimeoutError:
            self._fall_silent()
        except CallError as error:
            self._took(self._failed(error))
        else:
            self._waiting = True
            self._line.ask(self._request, MAX_HEALTH_BYTES)
        finally:
            self._dialling = False

    def _drop(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _judge(self, answer: Answer | CallError) -> None:
        if isinstance(answer, Answer):
            self._took(self._health.health(answer.status, self._clock.now()))
        elif isinstance(answer, ClosedError) and self._line is not None and self._line.used:
            self._put()  # it may have been tidied up just then: that is no answer yet
        else:
            self._took(self._failed(answer))

    def _fall_silent(self) -> None:
        if overslept(self._clock.now() - self._began, self._patience_s):
            return
        self._took(self._failed(SilentError(f"{_CALL} was not answered within {self._patience_s:g} s")))

    def _failed(self, error: CallError) -> Change | None:
        now, cause = self._clock.now(), str(error)
        if isinstance(error, RefusedError):
            return self._health.refused(cause, now)
        if isinstance(error, SilentError):
            return self._health.silent(cause, now)
        if isinstance(error, UnreachableError):
            return self._health.unreachable(cause, now)
        return self._health.broken(f"{_CALL}: {cause}", now)


def overslept(waited_s: float, timeout_s: float) -> bool:
    """True where this process slept through a time-out, so that the answer may lie unread."""
    return waited_s > timeout_s + _OWN_LATENESS_S
