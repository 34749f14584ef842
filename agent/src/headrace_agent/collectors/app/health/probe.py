"""The health probe: one question at a time, each answer taken as evidence."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from headrace_agent.collectors.app.health.rounds import Rounds
from headrace_agent.collectors.app.health.state import Change, EngineHealth
from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.errors import (
    REFUSED,
    AnswerError,
    CallError,
    ClosedError,
    OwnTroubleError,
    RefusedError,
    SilentError,
    UnreachableError,
)
from headrace_agent.collectors.app.http.line import Line
from headrace_shared.clock import Clock

MAX_HEALTH_BYTES: Final = 64 * 1024
# Lateness of this process itself, above which a time-out says nothing about the engine.
_OWN_LATENESS_S: Final = 0.25
# A process of the engine ended: its server needs a moment to notice.
HURRIES_S: Final = (0.01, 0.03, 0.06)
# What may have passed between an answer and the next question counts as silence, up to this share
# of the patience.
_CREDIT: Final = 0.25
HEALTH: Final = "/health"


class HealthProbe:
    """Asks an engine for its health in every round, never twice at once.

    An engine may take `patience_s` to answer; it may have fallen silent right after its last answer,
    so that is what the time is counted from. `took(change)` is called after each probe with the
    change that it made, or None. `elsewhere(path, status)` gives the path to ask instead where
    such an answer is none, and None where it is one.
    """

    def __init__(
        self,
        client: EngineClient,
        health: EngineHealth,
        rounds: Rounds,
        patience_s: float,
        clock: Clock,
        took: Callable[[Change | None], None],
        path: str = HEALTH,
        elsewhere: Callable[[str, int], str | None] = lambda path, status: None,
    ) -> None:
        self._client = client
        self._health = health
        self._rounds = rounds
        self._patience_s = patience_s
        self._clock = clock
        self._took = took
        self._path = self._asked = path
        self._elsewhere = elsewhere
        self._keyless = ""
        self._request = self._worded(path)
        self._line: Line | None = None
        self._began = 0.0
        self._until = 0.0
        self._alive_at = -math.inf
        self._looked_at = 0.0
        self._hurries: list[asyncio.TimerHandle] = []
        self._waiting = False
        self._dialling = False
        self._running = False
        self._wake = asyncio.Event()
        self._failure: Exception | None = None

    async def run(self) -> None:
        """Probe until cancelled."""
        self._waiting = self._dialling = False
        self._failure = None
        self._running = True
        self._rounds.join(self)
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._failure is not None:
                    raise self._failure
                await self._dial()
        finally:
            self._running = False
            self._calm()
            self._rounds.leave(self)
            self._drop()

    def hurry(self) -> None:
        """Ask now and a few times soon, without waiting for a round. Nothing while not running."""
        self._calm()
        if not self._running:
            return
        loop = asyncio.get_running_loop()
        self._hurries = [loop.call_later(delay, self._rounds.hurry, self) for delay in (0, *HURRIES_S)]

    def redial(self) -> None:
        """Ask at once over a new connection; what was asked over the old one is not heard any more."""
        self._waiting = False
        self._drop()
        self.hurry()

    def aim(self, path: str) -> None:
        """Ask another path from the next question on: engines differ in where they tell their health."""
        if path != self._path:
            self._path = path
            self._request = self._worded(path)

    def _worded(self, path: str) -> bytes:
        """The question, without the key while that cannot be read: an engine that wants it says so, and
        it is read again then."""
        try:
            request, self._keyless = self._client.request("GET", path), ""
        except AnswerError as error:
            request, self._keyless = self._client.request("GET", path, with_key=False), str(error)
        return request

    def ask(self, now: float) -> None:
        """A round begins."""
        if self._waiting or self._dialling or self._failure is not None:
            return
        self._began = self._looked_at = now
        silence = now - self._alive_at
        self._until = now + self._patience_s - (silence if silence <= _CREDIT * self._patience_s else 0.0)
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
            elif now >= self._until:
                self._waiting = False
                self._drop()
                self._fall_silent()
            else:
                self._looked_at = now
        except Exception as error:  # noqa: BLE001 - raised again in the task, which is watched over
            self._break(error)
        return self._until if self._waiting else None

    def _calm(self) -> None:
        for timer in self._hurries:
            timer.cancel()
        self._hurries = []

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
        self._say(self._line)

    def _say(self, line: Line) -> None:
        self._waiting = True
        self._asked = self._path
        line.ask(self._request, MAX_HEALTH_BYTES)

    async def _dial(self) -> None:
        try:
            async with asyncio.timeout(max(0.0, self._until - self._clock.now())):
                self._line = await self._client.open_line()
        except TimeoutError:
            self._fall_silent()
        except CallError as error:
            self._took(self._failed(error))
        else:
            self._say(self._line)
        finally:
            self._dialling = False

    def _drop(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _judge(self, answer: Answer | CallError) -> None:
        if isinstance(answer, Answer):
            # It came after the look before this one, at which it was not there yet.
            self._alive_at = self._looked_at
            if self._unlocks(answer.status):
                self._put()
            elif (path := self._elsewhere(self._asked, answer.status)) is not None:
                self.aim(path)
                self._put()
            else:
                call = self._call if answer.status != 200 else ""
                self._took(self._health.health(answer.status, self._clock.now(), call))
        elif isinstance(answer, ClosedError) and self._line is not None and self._line.used:
            self._put()  # it may have been tidied up just then: that is no answer yet
        else:
            self._took(self._failed(answer))

    def _unlocks(self, status: int) -> bool:
        """Whether the key, or a renewed one, may open what was refused."""
        if status not in REFUSED:
            return False
        self._client.unlock(self._asked, status)
        try:
            request = self._client.request("GET", self._path)
        except AnswerError:
            return False
        fresh, self._request, self._keyless = request != self._request, request, ""
        return fresh

    @property
    def _call(self) -> str:
        return f"GET {self._asked}" + (f" (without a key: {self._keyless})" if self._keyless else "")

    def _fall_silent(self) -> None:
        if overslept(self._clock.now(), self._until):
            return
        self._took(self._failed(SilentError(f"{self._call} was not answered within {self._patience_s:g} s")))

    def _failed(self, error: CallError) -> Change | None:
        now, cause = self._clock.now(), str(error)
        if isinstance(error, OwnTroubleError):
            return None
        if isinstance(error, RefusedError):
            return self._health.refused(cause, now)
        if isinstance(error, SilentError):
            return self._health.silent(cause, now)
        if isinstance(error, UnreachableError):
            return self._health.unreachable(cause, now)
        return self._health.broken(f"{self._call}: {cause}", now)


def overslept(now: float, due: float) -> bool:
    """True where this process slept through a time-out, so that the answer may lie unread."""
    return now > due + _OWN_LATENESS_S
