"""When to score and to publish: pure, every moment is given."""

from __future__ import annotations

from typing import Final

# Figures come twice a second from each node; a change of membership waits for neither of these.
SCORE_INTERVAL_S: Final = 0.1
QUIET_INTERVAL_S: Final = 0.25
REST_FACTOR: Final = 5.0
"""So many times as long as it took, a publication is not followed by another that nothing asks for at
once: while thousands of cells join, at most a sixth of the time goes into lists that are out of date a
moment later."""
LONGEST_REST_S: Final = 1.0
PICKED_REST_S: Final = 0.5
"""The same where a picker goes by what is scored: it trusts no picture that is older than a second, and a
rest, the publication before it and the scoring after it are all in that."""
SCORE_SHARE: Final = 0.05
"""Of a large fleet that changes no state, scoring may take this much of the time: 10,000 cells are scored
five times a second instead of ten. What is urgent does not wait for it."""
NEVER: Final = float("-inf")


class Pace:
    """What has happened since the last publication, and whether the next is due.

    `changed` says why the membership is another one, "" = it is not; `scored_at` is when the last
    publication was looked into. What takes a cell out of service, or
    changes what gateways hold of it, is due at once, and so is what operators ask for. What only brings
    cells in waits until the rest after the last publication is over.
    """

    def __init__(self, tick_s: float, longest_rest_s: float = LONGEST_REST_S) -> None:
        self.changed = ""
        self.scored_at = NEVER
        self._tick_s = tick_s
        self._longest_rest_s = longest_rest_s
        self._urgent = False
        self._told = True
        self._rests_until = NEVER
        self._took_s = 0.0

    def note_figures(self) -> None:
        """There are new figures to score."""
        self._told = True

    def note_change(self, cause: str, urgent: bool) -> None:
        """The membership has changed."""
        self.changed = cause or "membership"
        self._urgent |= urgent

    def demand(self) -> None:
        """Everything is to be scored at the next tick."""
        self._told = self._urgent = True
        self.scored_at = NEVER

    @property
    def waits(self) -> bool:
        """Whether anything but time asks for the next one."""
        return bool(self.changed) or self._urgent

    def rests(self, now: float) -> bool:
        """Whether nothing but what is urgent is due."""
        return now < self._rests_until and not self._urgent

    def is_due(self, now: float) -> bool:
        """Whether to score: soon after new figures, and now and then for what time alone changes (ramps,
        smoothing, figures that grow old). Ticks come at their own interval, so the nearest one counts."""
        if self._urgent:
            return True
        if self.rests(now):
            return False
        costs_s = min(self._took_s / SCORE_SHARE, QUIET_INTERVAL_S)
        interval = max(SCORE_INTERVAL_S, costs_s) if self._told else QUIET_INTERVAL_S
        return bool(self.changed) or now - self.scored_at >= interval - self._tick_s / 2

    def begin(self, now: float) -> str:
        """A publication begins: all that was noted is in it. Why it is forced, "" = it is not."""
        changed, self.changed = self.changed, ""
        self._urgent = self._told = False
        self.scored_at = now
        return changed

    def end(self, now: float, took_s: float) -> None:
        """It has ended at `now`, and took so long."""
        self._took_s = took_s
        self._rests_until = now + min(REST_FACTOR * took_s, self._longest_rest_s)
