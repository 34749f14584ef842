"""The engine model on the real clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from headrace_lab.cell.faults import FaultState
from headrace_lab.engine import Engine, Finish, Output, Request
from headrace_shared.clock import Clock

MAX_LATENESS_S = 0.25
"""Most time that late wake-ups may carry over into the steps after them."""


class Observer(Protocol):
    """Who is told of each token and of each request's end."""

    def token(self, output: Output) -> None: ...

    def finished(self, finish: Finish) -> None: ...


class Ticket:
    """The sequences of one HTTP request; iterate for (choice, output), in the order they come.

    Close it when done: what has not finished is then aborted.
    """

    def __init__(self, driver: EngineDriver, requests: Sequence[Request]) -> None:
        self._driver = driver
        self._open = {request.id: index for index, request in enumerate(requests)}
        # Room for every token, so that a slow client never holds up the engine.
        room = sum(request.max_tokens for request in requests)
        self._outputs: asyncio.Queue[tuple[int, Output]] = asyncio.Queue(maxsize=room)

    def deliver(self, output: Output) -> None:
        index = self._open[output.request_id]
        if output.finish is not None:
            del self._open[output.request_id]
        self._outputs.put_nowait((index, output))

    def __aiter__(self) -> AsyncIterator[tuple[int, Output]]:
        return self

    async def __anext__(self) -> tuple[int, Output]:
        if not self._open and self._outputs.empty():
            raise StopAsyncIteration
        return await self._outputs.get()

    def close(self) -> None:
        """Abort what has not finished."""
        for request_id in list(self._open):
            self._driver.abort(request_id)
        self._open.clear()


class EngineDriver:
    """Runs an engine step by step, sleeping each step's duration; asleep while there is no work."""

    def __init__(self, engine: Engine, clock: Clock, faults: FaultState, observer: Observer) -> None:
        self._engine = engine
        self._clock = clock
        self._faults = faults
        self._observer = observer
        self._tickets: dict[str, Callable[[Output], None]] = {}
        self._wake = asyncio.Event()

    def submit(self, requests: Sequence[Request]) -> Ticket:
        """Hand sequences to the engine. Raises ContextLengthError, and then none is taken."""
        ticket = Ticket(self, requests)
        now = self._clock.now()
        for taken, request in enumerate(requests):
            try:
                self._engine.submit(request, now)
            except ValueError:
                for earlier in requests[:taken]:
                    self._engine.abort(earlier.id, now)
                    del self._tickets[earlier.id]
                raise
            self._tickets[request.id] = ticket.deliver
        self._wake.set()
        return ticket

    def abort(self, request_id: str) -> None:
        """End a sequence whose client has gone."""
        self._tickets.pop(request_id, None)
        finish = self._engine.abort(request_id, self._clock.now())
        if finish is not None:
            self._observer.finished(finish)

    async def run(self) -> None:
        """Step for ever; cancel to stop."""
        due: float | None = None
        while True:
            await self._faults.pass_gate()
            self._engine.slowdown = self._faults.slowdown
            now = self._clock.now()
            step = self._engine.begin_step(now)
            if step is None:
                due = None
                self._wake.clear()
                await self._wake.wait()
                continue
            # Counted from when the last step was due, so that late wake-ups do not add up.
            start = now if due is None or now - due > MAX_LATENESS_S else due
            due = start + step.duration_s
            await asyncio.sleep(max(0.0, due - self._clock.now()))
            await self._faults.pass_gate()
            self._hand_out(self._engine.finish_step(step, self._clock.now()))

    def _hand_out(self, outputs: list[Output]) -> None:
        for output in outputs:
            self._observer.token(output)
            deliver = self._tickets[output.request_id]
            if output.finish is not None:
                self._observer.finished(output.finish)
                del self._tickets[output.request_id]
            deliver(output)
