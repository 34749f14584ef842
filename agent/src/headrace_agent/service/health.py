"""How the agent is, for supervisors: does it live, and is it of use?

*Live* is what a restart could mend: the event loop turns. *Ready* is what the agent is for: it has
looked at its engines and a controller hears it. A controller that is away is no reason to start an
agent again, which would only lose what it knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.service.pulse import REMEMBER_S, Pulse
from headrace_agent.service.reload import Reloader
from headrace_agent.service.streams import Streams
from headrace_shared.clock import Clock


@dataclass(slots=True)
class Phase:
    """Where the agent stands in its own life."""

    looked: bool = False
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reasons` say what is wrong; none: it is well. `details` are for people."""

    reasons: tuple[str, ...]
    details: Mapping[str, Any]

    @property
    def status(self) -> int:
        """The HTTP status: 200, or 503 with reasons."""
        return 503 if self.reasons else 200

    @property
    def body(self) -> dict[str, Any]:
        """As JSON."""
        return {"status": "unwell" if self.reasons else "ok", "reasons": list(self.reasons), **self.details}


class Health:
    """Judges the agent when asked."""

    def __init__(
        self, phase: Phase, pulse: Pulse, streams: Streams, reloader: Reloader, mishaps: Mishaps, clock: Clock
    ) -> None:
        self._phase = phase
        self._pulse = pulse
        self._streams = streams
        self._reloader = reloader
        self._mishaps = mishaps
        self._clock = clock

    def live(self, details: Mapping[str, Any]) -> Verdict:
        """Whether the agent works at all."""
        stalled_s = self._pulse.stalled_s(self._clock.now())
        stalled = f"the event loop stood still for {stalled_s:.1f} s within the last {REMEMBER_S:g} s"
        return Verdict((stalled,) if stalled_s else (), {**details, **self._own_details()})

    def ready(self, details: Mapping[str, Any]) -> Verdict:
        """Whether the agent lives and a controller hears of its cells."""
        live = self.live(details)
        reasons = list(live.reasons)
        if not self._phase.looked:
            reasons.append("the engines are being looked at for the first time")
        elif not self._streams.connected:
            reasons.append("no controller is connected: " + ", ".join(self._streams))
        if self._phase.leaving:
            reasons.append("the agent is leaving")
        return Verdict(tuple(reasons), live.details)

    def _own_details(self) -> dict[str, Any]:
        return {
            "controllers": {name: stream.connected for name, stream in self._streams.items()},
            "broken_parts": list(self._mishaps.unwell),
            "reload": self._reloader.trouble or "ok",
        }
