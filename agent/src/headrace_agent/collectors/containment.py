"""What breaks unexpectedly is said once, counted, and tried again; it takes nothing else with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from headrace_shared import log
from headrace_shared.clock import Clock

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
# What ran this long was well: if it breaks again, that is news.
WELL_AFTER_S: Final = 60.0


class Mishaps:
    """Unexpected errors by the part of the agent that they broke.

    Each is logged, with its traceback, when it differs from the part's last one. `counts` says how
    often each part broke.
    """

    def __init__(self) -> None:
        self._log = log.get("containment")
        self._last: dict[str, str] = {}
        self.counts: Counter[str] = Counter()

    @property
    def unwell(self) -> tuple[str, ...]:
        """The parts whose last error has not been followed by a success."""
        return tuple(self._last)

    def note(self, part: str, error: Exception) -> str:
        """`part` broke; the error in words."""
        words = describe(error)
        self.counts[part] += 1
        if self._last.get(part) != words:
            self._last[part] = words
            self._log.error("unexpected error, contained", part=part, error=words, exc_info=error)
        return words

    def clear(self, part: str) -> None:
        """`part` is well: its next error is news."""
        if self._last.pop(part, None) is not None:
            self._log.info("well again", part=part)

    def forget(self, *parts: str) -> None:
        """These parts, and the parts of them (`PART: ...`), are there no more; their counts stay."""
        for known in list(self._last):
            if any(known == part or known.startswith(f"{part}:") for part in parts):
                del self._last[known]


def describe(error: Exception) -> str:
    """An unexpected error, in one line."""
    return f"unexpected {type(error).__name__}: {error}"[:256]


async def keep_running(part: str, run: Callable[[], Awaitable[None]], clock: Clock, mishaps: Mishaps) -> None:
    """Run `run()` until cancelled: whenever it breaks or ends, start it again after a pause.

    The pause doubles from 1 s to 30 s while it keeps breaking.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        began = clock.now()
        error: Exception = RuntimeError("it ended by itself")
        try:
            await run()
        except Exception as raised:  # noqa: BLE001 - this is where it is contained
            error = raised
        if clock.now() - began >= WELL_AFTER_S:
            pause_s = FIRST_PAUSE_S
            mishaps.clear(part)
        mishaps.note(part, error)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
