"""A store that nobody waits for: one thread writes, the event loop goes on."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from headrace_controller.control.intents.records import Act, Wish
from headrace_controller.control.intents.store import Change, IntentStore, StoreError
from headrace_shared import log

QUEUE: Final = 1024
LOAD_S: Final = 2.0
WAIT_S: Final = 1.0
CLOSE_S: Final = 0.5


@dataclass(frozen=True)
class _Job:
    """Something for the thread to do; `done` gets what comes of it."""

    do: Callable[[IntentStore], object]
    done: Future[object] = field(default_factory=Future)


class Kept:
    """Await it for whether something is on disk; False where that is not so within WAIT_S."""

    def __init__(self, done: Future[object] | None) -> None:
        self._done = done

    def __await__(self) -> Generator[Any, None, bool]:
        return self._wait().__await__()

    async def _wait(self) -> bool:
        if self._done is None:
            return False
        try:
            async with asyncio.timeout(WAIT_S):
                await asyncio.wrap_future(self._done)
        except (StoreError, TimeoutError):
            return False
        return True


class StoreWriter:
    """Hands changes to a store in order, in a thread of its own, and tells whether they are kept.

    The disk may hang: then the queue fills, what does not fit is counted by `on_lost`, and whoever
    waits is told that it is not kept yet. `trouble` says what is wrong, "" while nothing is.
    """

    def __init__(self, store: IntentStore, on_lost: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._on_lost = on_lost
        self._queue: queue.Queue[_Job | None] = queue.Queue(QUEUE)
        self._log = log.get("intents")
        self.trouble = ""
        # A daemon: a disk that hangs must not hold up the end of the program.
        self._thread = threading.Thread(target=self._work, name="keep intents", daemon=True)
        self._thread.start()

    def load(self) -> tuple[Wish, ...] | None:
        """What the store holds; None where there is nothing, or where it cannot be had. Blocks for
        LOAD_S at most."""
        found = self._put(lambda store: store.load())
        try:
            loaded = found.result(LOAD_S) if found is not None else None
        except (StoreError, TimeoutError) as error:
            self._log.error(
                "operators' wishes cannot be had; starting without them",
                error=str(error) or f"the disk did not answer within {LOAD_S:g} s",
            )
            return None
        assert loaded is None or isinstance(loaded, tuple)
        return loaded

    def keep(self, changes: Sequence[Change], acts: Sequence[Act] = ()) -> Kept:
        """Begin to keep all of it."""
        return Kept(self.submit(changes, acts))

    def submit(self, changes: Sequence[Change], acts: Sequence[Act] = ()) -> Future[object] | None:
        """The same without waiting; None where the queue is full."""
        return self._put(lambda store: store.write(tuple(changes), tuple(acts)))

    async def acts(self, limit: int, before: int | None) -> list[tuple[int, Act]]:
        """As IntentStore.acts. Raises StoreError, also where the disk does not answer."""
        found = self._put(lambda store: store.acts(limit, before))
        if found is None:
            raise StoreError("the disk does not answer; try again later")
        try:
            async with asyncio.timeout(LOAD_S):
                rows = await asyncio.wrap_future(found)
        except TimeoutError as error:
            raise StoreError("the disk does not answer; try again later") from error
        assert isinstance(rows, list)
        return rows

    def close(self) -> None:
        """Write what is waiting, for CLOSE_S at most."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)

    def _put(self, do: Callable[[IntentStore], object]) -> Future[object] | None:
        job = _Job(do)
        try:
            self._queue.put_nowait(job)
        except queue.Full:
            self._on_lost()
            self._note("the disk does not answer")
            return None
        return job.done

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            if not job.done.set_running_or_notify_cancel():
                # Whoever waited has given up; what was asked is to be kept all the same.
                self._do(job.do)
                continue
            try:
                result = job.do(self._store)
                self._note("")  # first: whoever waits reads `trouble` next
                job.done.set_result(result)
            except Exception as error:  # noqa: BLE001 - the thread must outlive whatever a disk does
                self._failed(error)
                job.done.set_exception(error)
        self._store.close()

    def _do(self, do: Callable[[IntentStore], object]) -> None:
        try:
            do(self._store)
            self._note("")
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._on_lost()
        self._note(str(error))

    def _note(self, trouble: str) -> None:
        """Log once per change."""
        if trouble and not self.trouble:
            self._log.error("what operators ask for is not kept; a restart would forget it", error=trouble)
        elif self.trouble and not trouble:
            self._log.info("what operators ask for is kept again")
        self.trouble = trouble
