"""What the connection, the processes and the probe together say of an engine's life."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace_agent.collectors.app.health.state import Change, EngineHealth
from headrace_agent.collectors.app.http.dial import endpoint, is_address
from headrace_agent.collectors.app.processes.scanner import ProcessScanner
from headrace_agent.collectors.app.processes.watch import ProcessWatch
from headrace_agent.collectors.readings import EngineState
from headrace_agent.settings import CellSettings
from headrace_shared.clock import Clock

# The kernel closes a process's connections before it tells of its end: by as long as it takes to
# give a large memory back.
_TOGETHER_S: Final = 2.0
_BAD: Final = (EngineState.DOWN, EngineState.HUNG)


@dataclass(frozen=True, slots=True)
class _Page:
    """Who wrote a page, in which life of the engine, and when it was read."""

    life: int
    started_at: float
    at: float


class Vitals:
    """Turns what happens to an engine's connection and processes into evidence for `health`.

    `took` takes the changes, `hurry()` makes the probe ask at once, `redial()` over a new connection.
    An exit alone proves nothing: helpers come and go. That of the server does, together with the end
    of its connections.
    """

    def __init__(
        self,
        cell: CellSettings,
        health: EngineHealth,
        scanner: ProcessScanner,
        clock: Clock,
        took: Callable[[Change | None], None],
        hurry: Callable[[], None],
        redial: Callable[[], None],
    ) -> None:
        self._health = health
        self._clock = clock
        self._took = took
        self._hurry = hurry
        self._redial = redial
        self._let_go_at = -math.inf
        self._let_go_in_life = -1
        self._page: _Page | None = None
        host, port = endpoint(cell.url)
        address = "127.0.0.1" if host == "localhost" else host if is_address(host) else None
        self.processes = ProcessWatch(
            cell.id, address, port, scanner, clock, self._exited, self._replaced, health
        )

    def gone(self, cause: str) -> None:
        """The idle connection ended and its reconnect was refused."""
        self._died(self._health.refused(cause, self._clock.now()))

    def connected(self) -> None:
        """The idle connection was made."""
        self._took(self._health.connected(self._clock.now()))

    def let_go(self) -> None:
        """The idle connection ended."""
        self._let_go_at, self._let_go_in_life = self._clock.now(), self._health.life
        self._judge()

    def paged(self, started_at: float | None) -> None:
        """A page came, of a process that says it started at `started_at` (seconds since the epoch).

        A restart between two probes is seen where processes cannot be: the page is another process's,
        and the idle connection ended since the last one. Several servers behind one address end none.
        """
        if started_at is None:
            return
        now, before = self._clock.now(), self._page
        self._page = _Page(self._health.life, started_at, now)
        if before is None or before.life != self._health.life:
            return
        if started_at > before.started_at and self._let_go_at >= before.at:
            self._took(self._health.ended("its metrics page is another process's than before", now))

    def explain(self, change: Change) -> str:
        """The change's cause, with the processes that ended and those that should have."""
        if change.state not in _BAD:
            return change.cause
        ended = self.processes.explain()
        return "; ".join(filter(None, [ended, change.cause, self.processes.orphans()]))

    def _exited(self) -> None:
        self._judge()
        self._hurry()

    def _judge(self) -> None:
        over_at = self.processes.over_at
        # An end that is told late must not be held against the life after it.
        if over_at is None or self._let_go_in_life != self._health.life:
            return
        if abs(over_at - self._let_go_at) <= _TOGETHER_S:
            self._died(self._health.ended("the server's connections ended with it", self._clock.now()))

    def _died(self, change: Change | None) -> None:
        """The server is gone. What it answered before and nobody has read yet says nothing any more."""
        self._took(change)
        if change is not None:
            self._redial()

    def _replaced(self, proof: str) -> None:
        """Connections that are open still lead to the process of before."""
        self._took(self._health.ended(proof, self._clock.now()))
        self._redial()
