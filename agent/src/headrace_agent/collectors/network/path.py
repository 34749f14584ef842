"""One path: its gateway, the way it is measured, and what its echoes say. No clock, no sockets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace_agent.collectors.network.echo import Echo, Outcome
from headrace_agent.collectors.network.estimate import PathEstimator
from headrace_agent.collectors.readings import PathMethod, PathReading

# Figures that nothing has renewed for this long are no longer the path's.
STALE_S = 10.0
STALE_INTERVALS = 10.0


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
    """The path to one gateway."""

    def __init__(self, target: GatewayTarget, method: PathMethod, interval_s: float) -> None:
        self.target = target
        self.method = method
        self.condition = Condition.UNKNOWN
        self._stale_s = max(STALE_S, STALE_INTERVALS * interval_s)
        self._estimator = PathEstimator()
        self._measured_at: float | None = None

    @property
    def dead(self) -> bool:
        """Whether it has stopped answering."""
        return self._estimator.dead

    def take(self, echo: Echo, now: float) -> bool:
        """Note an echo that ended at `now`; True when the path's condition or method changed."""
        before = (self.condition, self.method)
        if echo.method is not self.method and echo.outcome is not Outcome.UNABLE:
            # Round trips by ICMP and by TCP are not to be compared.
            self.method, self._estimator = echo.method, PathEstimator()
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
        return before != (self.condition, self.method)

    def reading(self, now: float) -> PathReading:
        """The figures now; a dead path has a loss of 1 and no round trip."""
        if self._measured_at is None or now - self._measured_at > self._stale_s:
            return PathReading(self.target.id, method=self.method, measured_at=self._measured_at)
        figures = self._estimator.estimate()
        return PathReading(
            gateway=self.target.id,
            rtt_ms=figures.rtt_ms,
            jitter_ms=figures.jitter_ms,
            loss=figures.loss,
            method=self.method,
            measured_at=self._measured_at,
        )
