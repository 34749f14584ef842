"""Counters of another process, made monotonic; and differences over a sliding window."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from operator import sub
from typing import Generic, TypeVar

from headrace_agent.collectors.app.pages.figures import Figures
from headrace_agent.collectors.app.pages.mapping import CLASSES, FAILURES, OK
from headrace_agent.collectors.app.pages.plan import is_count
from headrace_agent.collectors.readings import Totals

Key = TypeVar("Key", bound=Hashable)
Values = tuple[float, ...]

MAX_SERIES = 4096
# A window is kept as at most about this many marks, however short the scrape interval.
_MARKS = 100


class Increments(Generic[Key]):
    """What has been added to each series since the page before: never negative.

    A series is a vector of counters that reset together (the buckets of a histogram; one
    counter is a vector of one). The first page is the base, unless all that it shows is wanted
    (`from_start`). A series that appears later started from zero; one in which any counter fell
    was reset, and what it shows now is new; one that vanished is remembered, so that its return
    is no jump. `resets` counts what went back.
    """

    def __init__(self, from_start: bool = False) -> None:
        self._last: dict[Key, Values] = {}
        self._epoch: float | None = None
        self._based = from_start
        self.resets = 0

    def update(self, series: Mapping[Key, Values], epoch: float | None) -> dict[Key, Values]:
        """The increments of each series; `epoch` differs where the process was started anew.

        A series whose vector changed its length has none: its counters are not the same ones.
        """
        if self._based and epoch is not None and self._epoch is not None and epoch != self._epoch:
            self._last.clear()
            self.resets += 1
        self._epoch = epoch if epoch is not None else self._epoch
        if not self._based:
            self._based = True
            added = {key: (0.0,) * len(values) for key, values in series.items()}
        else:
            added = {key: self._added(key, values) for key, values in series.items()}
        self._last.update(series)
        if len(self._last) > MAX_SERIES:
            self._last = dict(series)
        return added

    def _added(self, key: Key, values: Values) -> Values:
        last = self._last.get(key)
        if last is None:
            return values
        if last == values or len(last) != len(values):
            return (0.0,) * len(values)
        added = tuple(map(sub, values, last))
        if min(added) >= 0:
            return added
        self.resets += 1
        return values


class SlidingWindow:
    """The difference of a rising vector over the last `length_s` seconds."""

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._marks: deque[tuple[float, Values]] = deque()
        self._latest: Values = ()

    def reach(self, length_s: float) -> None:
        """Be so long from now on; what is known already is kept as far as it reaches back."""
        self._length_s = length_s

    def push(self, values: Sequence[float], now: float) -> None:
        """Take in the vector as it is at `now`."""
        self._latest = tuple(values)
        if not self._marks or now - self._marks[-1][0] >= self._length_s / _MARKS:
            self._marks.append((now, self._latest))
        while len(self._marks) > 1 and self._marks[1][0] <= now - self._length_s:
            self._marks.popleft()

    def pass_time(self, now: float) -> None:
        """Nothing was added until `now`, as far as can be told."""
        if self._marks:
            self.push(self._latest, now)

    def delta(self) -> Values:
        """Latest minus oldest; empty where nothing was pushed."""
        if not self._marks:
            return ()
        return tuple(map(sub, self._latest, self._marks[0][1]))

    def restart(self) -> None:
        """Forget what was pushed."""
        self._marks.clear()


class RequestCounter:
    """Totals since the agent started, and the error rate over the last `window_s` seconds.

    Answers by class are the source where the engine counts them; where it does not, finished
    requests give `ok`, failures are unknown, and so is the error rate. `from_start`: what the first
    page shows counts as well.
    """

    def __init__(self, window_s: float, from_start: bool = False) -> None:
        self._increments: Increments[tuple[str, Hashable]] = Increments(from_start)
        self._sums = dict.fromkeys(CLASSES, 0.0)
        self._by_class = False
        self._known: set[str] = set()
        self._epoch: float | None = None
        self._window = SlidingWindow(window_s)
        if from_start:
            self._window.push((0.0, 0.0), -math.inf)

    def update(self, figures: Figures, now: float) -> None:
        """Take in a page."""
        if figures.started_at is not None and figures.started_at != self._epoch:
            self._epoch, self._by_class = figures.started_at, False
        self._by_class = self._by_class or figures.responses is not None
        self._note_known(figures)
        finished: dict[tuple[str, Hashable], Values] = {
            (kind, ("finished", series)): (value,)
            for (kind, series), value in (figures.finished or {}).items()
        }
        responses: dict[tuple[str, Hashable], Values] = {
            (kind, ("responses", series)): (value,)
            for (kind, series), value in (figures.responses or {}).items()
        }
        added = self._increments.update({**finished, **responses}, figures.started_at)
        for key in responses if self._by_class else finished:
            self._sums[key[0]] += added[key][0]
        failed = sum(self._sums[name] for name in FAILURES)
        self._window.push((failed, sum(self._sums.values())), now)

    def _note_known(self, figures: Figures) -> None:
        if figures.responses is not None:
            self._known |= figures.tells
        if figures.finished is not None:
            self._known.add(OK)

    def pass_time(self, now: float) -> None:
        """A page came that tells of no requests: those of before grow old all the same."""
        self._window.pass_time(now)

    def reach(self, window_s: float) -> None:
        """Take the error rate over so many seconds from now on."""
        self._window.reach(window_s)

    def restart_window(self) -> None:
        """Leave what was counted so far out of the error rate."""
        self._window.restart()

    @property
    def resets(self) -> int:
        """How often counters went back."""
        return self._increments.resets

    @property
    def totals(self) -> Totals | None:
        """Requests by class since the agent started; None where nothing was ever counted.

        A class whose sum is beyond what can be counted is absent.
        """
        counted = {name: self._sums[name] for name in (OK, *FAILURES) if name in self._known}
        if not counted:
            return None
        return Totals(**{name: round(value) for name, value in counted.items() if is_count(value)})

    @property
    def error_rate(self) -> float | None:
        """Failed share of the window's requests, 0 to 1; None without requests, or where the
        engine does not count failures."""
        delta = self._window.delta()
        if not self._by_class or not delta or delta[1] <= 0:
            return None
        return delta[0] / delta[1]
