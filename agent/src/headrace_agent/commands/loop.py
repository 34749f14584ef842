"""An event loop for one command, and an end that waits for no thread.

asyncio.run, and the interpreter at its end, wait for every thread of the loop's executor; one of them
may be waiting for a name server that keeps silent.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

ENDING_S: Final = 1.0
# How asyncio names the threads of a loop's own executor.
_EXECUTOR: Final = "asyncio_"
_left_behind: Final[list[threading.Thread]] = []


def run(main: Coroutine[Any, Any, T]) -> T:
    """The result of `main`; tasks that it leaves are cancelled."""
    before = set(threading.enumerate())
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left, timeout=ENDING_S))
        loop.close()
        new = set(threading.enumerate()) - before
        _left_behind.extend(each for each in new if each.name.startswith(_EXECUTOR))


def leave(code: int) -> None:
    """End the program with `code`, without waiting for a thread of a loop that something holds up."""
    sys.stdout.flush()
    sys.stderr.flush()
    if any(each.is_alive() for each in _left_behind):
        os._exit(code)
    raise SystemExit(code)
