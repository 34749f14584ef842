"""Drains in progress: when has a cell finished the requests it holds? Pure: `now` comes in."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from headrace_agent.collectors.readings import EngineReading, Status

# One zero may fall between two requests; a request that a gateway sent before it heard of the
# drain may still be under way.
ZEROS_NEEDED: Final = 2


@dataclass(frozen=True, slots=True)
class Drain:
    """One cell that one controller drains. `since` and `deadline` in seconds of the agent's clock."""

    controller: str
    cell_id: str
    cause: str
    since: float
    deadline: float
    zeros: int = 0
    last_read_at: float | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """A drain that is over, for the controller that asked, and why."""

    controller: str
    cell_id: str
    cause: str


class Drains:
    """All drains of this agent, at most one a controller and cell.

    A cell is drained when its engine says 0 requests in flight in two consecutive fresh readings,
    both taken after the drain began, or when the deadline passes.
    """

    def __init__(self) -> None:
        self._drains: dict[tuple[str, str], Drain] = {}

    def __len__(self) -> int:
        return len(self._drains)

    def start(self, controller: str, cell_id: str, cause: str, deadline_s: float, now: float) -> None:
        """Watch a cell; asked again, the new deadline (seconds from `now`) counts."""
        before = self._drains.get((controller, cell_id))
        fresh = Drain(controller, cell_id, cause, now, now + deadline_s)
        self._drains[controller, cell_id] = (
            replace(before, cause=cause, deadline=fresh.deadline) if before else fresh
        )

    def cancel(self, controller: str, cell_id: str) -> bool:
        """Forget a drain; False when there was none."""
        return self._drains.pop((controller, cell_id), None) is not None

    def forget(self, *, cells: Collection[str] = (), controller: str = "") -> None:
        """Drop the drains of cells that are gone, and those that a controller which is gone asked for."""
        self._drains = {
            key: drain
            for key, drain in self._drains.items()
            if drain.cell_id not in cells and drain.controller != controller
        }

    def check(self, reading: Callable[[str], EngineReading], now: float) -> list[Finished]:
        """Look at every drained cell's reading; the drains that are over are returned once."""
        finished: list[Finished] = []
        for key, drain in list(self._drains.items()):
            seen = _observe(drain, reading(drain.cell_id))
            why = _why_over(seen, now)
            if why is None:
                self._drains[key] = seen
            else:
                del self._drains[key]
                finished.append(Finished(drain.controller, drain.cell_id, f"{why} (asked: {drain.cause})"))
        return finished


def _observe(drain: Drain, reading: EngineReading) -> Drain:
    source = reading.source
    read_at = source.read_at if source.status is Status.OK else None
    if read_at is None or reading.in_flight is None:
        return replace(drain, zeros=0)
    if read_at <= drain.since or read_at == drain.last_read_at:
        return drain
    return replace(drain, zeros=drain.zeros + 1 if reading.in_flight == 0 else 0, last_read_at=read_at)


def _why_over(drain: Drain, now: float) -> str | None:
    if drain.zeros >= ZEROS_NEEDED:
        return "no request in flight"
    if now >= drain.deadline:
        return "the deadline passed with requests in flight or unknown"
    return None
