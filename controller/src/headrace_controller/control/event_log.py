"""What happened in the region, numbered, bounded, and followed live by any number of readers.

A reader has no queue of its own: it keeps the number of the last entry it has seen and asks for
what came after it. One that is too slow finds a gap, and costs nothing meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from headrace_controller.control.view import EventKind, EventView, iso_time
from headrace_controller.control.witness import Witness
from headrace_controller.lifecycle import LoggedTransition
from headrace_controller.pressure import Alert
from headrace_shared.clock import Clock

KEPT: Final = 4096


class EventLog(Witness):
    """The newest `KEPT` entries.

    Numbers begin at the wall clock's milliseconds and rise by one, so that they go on rising after
    a restart, and a number from before it is known to be one.
    """

    def __init__(self, clock: Clock, kept: int = KEPT) -> None:
        self._clock = clock
        self._entries: deque[EventView] = deque(maxlen=kept)
        self._next = clock.wall_ns() // 1_000_000
        self._first = self._next
        self._more = asyncio.Event()
        self._closed = False

    @property
    def last_id(self) -> int:
        """The number of the newest entry; one less than the first where there is none yet."""
        return self._next - 1

    @property
    def closed(self) -> bool:
        """True once nobody is to wait for more."""
        return self._closed

    def newest(self, limit: int) -> Sequence[EventView]:
        """The newest `limit` entries, newest last."""
        return list(islice(self._entries, max(0, len(self._entries) - limit), None))

    def after(self, seen: int, limit: int) -> tuple[Sequence[EventView], bool]:
        """At most `limit` entries with numbers above `seen`, oldest first, and whether some between
        `seen` and the first of them are not kept any more."""
        oldest = self._next - len(self._entries)
        begin = max(seen + 1, oldest)
        gap = seen + 1 < oldest
        entries = (
            list(islice(self._entries, begin - oldest, begin - oldest + limit)) if begin < self._next else []
        )
        return entries, gap

    async def wait(self, seen: int) -> None:
        """Return when there is an entry above `seen`, or the log is closed."""
        while self.last_id <= seen and not self._closed:
            await self._more.wait()

    def close(self) -> None:
        """Let all who wait go."""
        self._closed = True
        self._more.set()

    def add(
        self,
        kind: EventKind,
        event: str,
        cause: str = "",
        *,
        cell: str = "",
        by: str = "",
        at: float | None = None,
    ) -> None:
        """Note something that is no change of a cell's state; `at` is monotonic, None = now."""
        self._add(self._clock.now() if at is None else at, kind, cell, "", "", event, cause, by)

    # control.witness.Witness

    def changed(self, entry: LoggedTransition) -> None:
        change = entry.transition
        before = change.before.name if change.before else ""
        self._add(
            change.at, "state", entry.cell_id, before, change.to.name, change.event.value, change.cause, ""
        )

    def alerted(self, alert: Alert) -> None:
        word = "early warning" if alert.began else "early warning over"
        self.add("alert", word, f"{alert.kind}: {alert.said}", cell=alert.cell_id)

    def withheld(self, on: bool) -> None:
        self.add("self_preservation", "on" if on else "off", "too many agents silent at once" if on else "")

    def _add(
        self, at: float, kind: EventKind, cell: str, before: str, after: str, event: str, cause: str, by: str
    ) -> None:
        wall = self._clock.wall_ns() / 1e9 - self._clock.now() + at
        self._entries.append(
            EventView(self._next, iso_time(wall), kind, cell, before, after, event, cause, by)
        )
        self._next += 1
        more, self._more = self._more, asyncio.Event()
        more.set()
