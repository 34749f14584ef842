"""When the next beat is due, and how long to wait after a failed connection. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace_agent.collectors.grid import next_due

TELEMETRY_S: Final = 0.5
LIVENESS_S: Final = 0.1
# What a controller may ask for; outside it, an agent would flood the wire or look dead.
TELEMETRY_RANGE_S: Final = (0.1, 60.0)
LIVENESS_RANGE_S: Final = (0.02, 60.0)
# What is due is never closer to what was before it than this share of its interval.
_LEAST: Final = 0.25


class Cadence:
    """The due times of one stream's beats, in seconds of the caller's clock.

    Both keep to the moments that all the agent's parts share. Telemetry skips beats that it missed.
    A sign of life is due at the next such moment after nothing was sent for a quarter of a liveness
    interval: after one interval in a steady stream, and after 1.25 at most.
    """

    def __init__(self, now: float, telemetry_s: float = TELEMETRY_S, liveness_s: float = LIVENESS_S) -> None:
        self.telemetry_s = telemetry_s
        self.liveness_s = liveness_s
        self._next_telemetry = next_due(now, telemetry_s, least=_LEAST)
        self._next_liveness = next_due(now, liveness_s, least=_LEAST)

    def ask(self, telemetry_ms: int, liveness_ms: int, now: float) -> None:
        """Take the controller's wishes (ms; 0 = the default), clamped to what is sane."""
        telemetry_s = _clamp(telemetry_ms / 1000 or TELEMETRY_S, TELEMETRY_RANGE_S)
        if telemetry_s != self.telemetry_s:
            self.telemetry_s = telemetry_s
            self._next_telemetry = min(self._next_telemetry, next_due(now, telemetry_s, least=_LEAST))
        self.liveness_s = _clamp(liveness_ms / 1000 or LIVENESS_S, LIVENESS_RANGE_S)
        self._next_liveness = min(self._next_liveness, next_due(now, self.liveness_s, least=_LEAST))

    def telemetry_due(self, now: float) -> bool:
        """True once per telemetry interval."""
        if now < self._next_telemetry:
            return False
        self._next_telemetry = next_due(now, self.telemetry_s, least=_LEAST)
        return True

    def liveness_due(self, now: float) -> bool:
        """True when it is time for a sign of life."""
        return now >= self._next_liveness

    def sent(self, now: float) -> None:
        """Something was sent: any message is a sign of life."""
        self._next_liveness = next_due(now, self.liveness_s, least=_LEAST)

    def wait_s(self, now: float) -> float:
        """Seconds until the next beat is due; 0 when one is."""
        return max(0.0, min(self._next_telemetry, self._next_liveness) - now)


class Backoff:
    """Delays between attempts: `first_s` doubling to `most_s`, each cut by up to a half at random,
    so that agents which lost a controller together do not return together."""

    def __init__(self, random: Callable[[], float], first_s: float = 0.1, most_s: float = 2.0) -> None:
        self._random = random
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    def next_s(self) -> float:
        """The delay before the next attempt, in seconds."""
        delay = self._next_s
        self._next_s = min(self._next_s * 2, self._most_s)
        return delay * (1.0 - 0.5 * self._random())

    def reset(self) -> None:
        """The connection held: start over."""
        self._next_s = self._first_s


def _clamp(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])
