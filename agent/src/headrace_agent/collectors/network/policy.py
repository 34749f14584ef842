"""By which way a path is measured: the preferred one, and another where that says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace_agent.collectors.network.echo import Echo, Outcome, Prober
from headrace_agent.collectors.readings import PathMethod


async def probe(
    probers: Sequence[Prober], method: PathMethod, dead: bool, address: str, port: int, timeout_s: float
) -> Echo:
    """One echo to `address`, by `method` first and then by the other probers in their order.

    Another way is tried where the one before is not possible on this host, and where the path is
    `dead` by it: networks filter ICMP far more often than they fail. The answer is the first
    reply, with the reason why the ways before it gave none; without one the first loss, or the
    first reason why nothing could be sent.
    """
    said: Echo | None = None
    for prober in sorted(probers, key=lambda each: each.method is not method):
        echo = await prober.echo(address, port, timeout_s)
        if echo.outcome in (Outcome.REPLY, Outcome.DROPPED):
            return echo if said is None or echo.detail else replace(echo, detail=said.detail)
        if said is None or (said.outcome is Outcome.UNABLE and echo.outcome is Outcome.LOST):
            said = echo
        if echo.outcome is Outcome.LOST and not dead:
            break
    if said is None:
        return Echo(Outcome.UNABLE, method, detail="paths are not measured here")
    return said


async def probe_preferred(
    probers: Sequence[Prober], address: str, port: int, timeout_s: float
) -> Echo | None:
    """The reply by the preferred way, or None: a path that is alive by another is not lost by it."""
    echo = await probers[0].echo(address, port, timeout_s)
    return echo if echo.outcome is Outcome.REPLY else None


class Return:
    """When a path that is measured by a stand-in is tried by the preferred way again. Pure.

    The wait doubles each time the preferred way was given up, so that a path on which it half
    works does not swing between two.
    """

    FIRST_S = 60.0
    MOST_S = 3600.0

    def __init__(self) -> None:
        self._wait_s = self.FIRST_S / 2
        self._due: float | None = None

    def left(self, now: float) -> None:
        """The preferred way was given up at `now`."""
        self._wait_s = min(self._wait_s * 2, self.MOST_S)
        self._due = now + self._wait_s

    def came_back(self) -> None:
        """The preferred way is in use."""
        self._due = None

    def due(self, now: float) -> bool:
        """True once per waiting time while a stand-in is in use."""
        if self._due is None or now < self._due:
            return False
        self._due = now + self._wait_s
        return True
