"""Whether a connection still serves anybody: silence, idleness, and peers that never begin."""

from __future__ import annotations

from enum import Enum

from headrace_controller.wire.limits import Limits


class Step(Enum):
    """What the time that passed calls for."""

    NONE = "none"
    PING = "ping"
    END = "end"
    """Say goodbye and close: nothing is wrong, nobody speaks."""
    DROP = "drop"
    """Close at once: the peer does not answer, or never began."""


class Liveness:
    """Times of one connection, s. Any byte is a sign of life."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._opened = now
        self._heard = now
        self._in_use = now
        self._pinged: float | None = None
        self.begun = False
        """Whether the peer's SETTINGS have come."""

    def heard(self, now: float) -> None:
        """Bytes came."""
        self._heard = now
        self._pinged = None

    def tick(self, calls: bool, now: float) -> Step:
        """What is to be done now; `calls`: whether there are any. A PING counts as sent."""
        limits = self._limits
        if calls:
            self._in_use = now
        if not self.begun:
            return Step.DROP if now - self._opened >= limits.handshake_s else Step.NONE
        if self._pinged is not None:
            return Step.DROP if now - self._pinged >= limits.ping_timeout_s else Step.NONE
        if now - self._in_use >= limits.idle_s:
            return Step.END
        if now - self._heard >= limits.ping_after_s:
            self._pinged = now
            return Step.PING
        return Step.NONE
