"""A bound on waits that are many and short: its timer stays where it is from one to the next.

`asyncio.timeout` makes a timer for each wait and takes it back a moment later. The event loop keeps
what was taken back until it would have been due: ten waits a second, of which each may last ten
seconds, are a hundred dead timers that all the others are sorted among.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Patience:
    """Bounds one wait at a time: `with patience.of(seconds): await ...` raises TimeoutError after so long.

    As with `asyncio.timeout`, a cancellation from elsewhere stays one.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._seconds = 0.0
        self._due = 0.0
        self._cancellations = 0
        self._over = False

    def of(self, seconds: float) -> Self:
        """For the wait that begins now."""
        self._seconds = seconds
        return self

    def __enter__(self) -> Self:
        if self._task is not None:
            raise RuntimeError("one wait at a time")
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a wait is a task's")
        loop = self._loop = task.get_loop()
        self._task, self._cancellations, self._over = task, task.cancelling(), False
        self._due = loop.time() + self._seconds
        if self._timer is None or self._timer.when() > self._due:
            self._set(loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if not self._over or task is None:
            return
        others = task.uncancel() > self._cancellations
        if not others and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._due, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        when = self._timer.when() if self._timer is not None else 0.0
        self._timer = None
        if self._task is None:
            return
        if when < self._due:  # it was set for a wait that ended in time
            self._set(loop)
            return
        self._over = True
        self._task.cancel()
