"""Whether an engine's gauges can be believed: they freeze, and some are not alive yet.

An engine writes its gauges as it works. After a mass abort, or when it is wedged, the last ones
stay on the page and say that requests run; and just after a start some say that none do, while
tokens come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace_agent.collectors.app.pages.figures import Figures

# Fewer pages that agree are no proof that nothing moves.
_PAGES: Final = 4
# How long after a start queue gauges may say nothing although there is work; seen for 18 s.
COLD_S: Final = 30.0

Moving = tuple[tuple[float, ...], float | None, float | None, float | None]


class Motion:
    """What moved from page to page, and since when nothing did."""

    def __init__(self) -> None:
        self._last: Moving | None = None
        self._moved_at = 0.0
        self._still_pages = 0
        self._life: _Life | None = None
        self.frozen_since: float | None = None
        self.cold = False

    def update(self, figures: Figures, still_after_s: float, resets: int, now: float) -> None:
        """Take in a page.

        `still_after_s`: for how long an engine at work may show no sign of it. `resets`: how often
        its counters went back.
        """
        moving = (figures.progress, figures.queue_depth, figures.running, figures.kv_fill)
        worked = self._last is not None and figures.progress != self._last[0]
        if moving == self._last:
            self._still_pages += 1
        else:
            self._last, self._moved_at, self._still_pages = moving, now, 1
        self._judge_frozen(figures, still_after_s, now)
        self._judge_cold(figures, worked, resets, now)

    def _judge_frozen(self, figures: Figures, still_after_s: float, now: float) -> None:
        claims_work = bool(figures.running or figures.queue_depth)
        still = self._still_pages >= _PAGES and now - self._moved_at >= still_after_s
        can_tell = bool(figures.progress) and figures.awake is not False
        self.frozen_since = self._moved_at if claims_work and still and can_tell else None

    def _judge_cold(self, figures: Figures, worked: bool, resets: int, now: float) -> None:
        """A start that was watched, gauges that were 0 ever since, and work that was done meanwhile."""
        mark = (figures.started_at, resets)
        if self._life is None or self._life.mark != mark:
            watched = self._life is not None or not any(figures.progress)
            self._life = _Life(mark, now, watched)
        life = self._life
        life.alive = life.alive or bool(figures.running or figures.queue_depth)
        life.worked = life.worked or worked
        silent = figures.running == 0 and figures.queue_depth == 0 and not life.alive
        self.cold = life.watched and life.worked and silent and now - life.since < COLD_S


@dataclass(slots=True)
class _Life:
    """One life of the engine behind the page, told from others by `mark`.

    `watched`: from its start on. `alive`: its queue gauges have said something. `worked`: its
    counters have moved.
    """

    mark: tuple[float | None, int]
    since: float
    watched: bool
    alive: bool = False
    worked: bool = False
