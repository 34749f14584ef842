"""One path: its gateway, the way it is measured, and what its echoes say. No clock, no sockets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from headrace_agent.collectors.network.echo import Echo, Outcome
from headrace_agent.collectors.network.estimate import PathEstimator
from headrace_agent.collectors.network.policy import Return
from headrace_agent.collectors.readings import PathMethod, PathReading

# Figures that nothing has renewed for this long are no longer the path's.
STALE_S = 10.0
STALE_INTERVALS = 10.0
STALE_TIMEOUTS = 5.0


@dataclass(frozen=True, slots=True)
class GatewayTarget:
    """A gateway to measure the path to; `port` accepts TCP, 0 = none."""

    id: str
    host: str
    port: int


class Condition(Enum):
    """How a path is, for people."""

    UNKNOWN = "unknown"
    ALIVE = "alive"
    DEAD = "dead"
    UNABLE = "cannot be measured"


class Path:
    """The path to one gateway.

    Its figures are those of one address, measured one way: round trips to two addresses, or by
    ICMP and by TCP, are not to be mixed.
    """

    def __init__(
        self, target: GatewayTarget, method: PathMethod, interval_s: float, timeout_s: float
    ) -> None:
        self.target = target
        self.method = method
        self.address = ""
        self.condition = Condition.UNKNOWN
        self._preferred = method
        self._return = Return()
        self._stale_s = max(STALE_S, STALE_INTERVALS * interval_s, STALE_TIMEOUTS * timeout_s)
        self._estimator = PathEstimator()
        self._asked = ""
        self._measured_at: float | None = None
        self._detail = ""
        self._why_not_preferred = ""

    @property
    def dead(self) -> bool:
        """Whether it has stopped answering."""
        return self._estimator.dead

    def choose(self, addresses: Sequence[str]) -> str:
        """The address to ask next: the one that answers, while the name holds it. While none does,
        each in turn: one IP version of a gateway may be cut off."""
        if self._asked not in addresses:
            return addresses[0]
        onwards = self._estimator.silent or self.condition is Condition.UNABLE
        return addresses[(addresses.index(self._asked) + onwards) % len(addresses)]

    def return_due(self, now: float) -> bool:
        """Whether the preferred way should be tried again, with a stand-in in use."""
        return self._return.due(now)

    def take(self, echo: Echo, address: str, now: float) -> bool:
        """Note an echo to `address` that ended at `now`; True when the path's condition, method or
        address changed."""
        before, address_before = (self.condition, self.method), self.address
        self._asked = address
        if self._is_another(echo, address):
            self._estimator = PathEstimator()
            self._switch(echo, now)
            self.address = address
        self._detail = self._why_not_preferred if echo.outcome is Outcome.REPLY else echo.detail
        if echo.outcome is Outcome.UNABLE:
            self.condition = Condition.UNABLE
        elif echo.outcome is Outcome.REPLY and echo.rtt_ms is not None:
            self._estimator.reply(echo.rtt_ms, now)
            self.condition = Condition.ALIVE
        elif echo.outcome is Outcome.LOST:
            self._estimator.lost()
            if self._estimator.dead:
                self.condition = Condition.DEAD
        if echo.outcome in (Outcome.REPLY, Outcome.LOST):
            self._measured_at = now
        moved = address_before not in ("", self.address)
        return moved or before != (self.condition, self.method)

    def reading(self, now: float) -> PathReading:
        """The figures now; a dead path has a loss of 1 and no round trip."""
        if self._measured_at is None or now - self._measured_at > self._stale_s:
            return PathReading(
                self.target.id, method=self.method, measured_at=self._measured_at, detail=self._detail
            )
        figures = self._estimator.estimate()
        return PathReading(
            gateway=self.target.id,
            rtt_ms=figures.rtt_ms,
            jitter_ms=figures.jitter_ms,
            loss=figures.loss,
            method=self.method,
            measured_at=self._measured_at,
            detail=self._detail,
        )

    def _is_another(self, echo: Echo, address: str) -> bool:
        """Whether an echo is of another way or address than the figures, and counts as their end.

        While nothing answers, a loss elsewhere leaves the path as silent as it was.
        """
        if (echo.method, address) == (self.method, self.address):
            return False
        return echo.outcome is Outcome.REPLY or (echo.outcome is Outcome.LOST and not self._estimator.silent)

    def _switch(self, echo: Echo, now: float) -> None:
        if echo.method is self._preferred:
            self._return.came_back()
            self._why_not_preferred = ""
        elif self.method is self._preferred:
            self._return.left(now)
            self._why_not_preferred = echo.detail
        self.method = echo.method
