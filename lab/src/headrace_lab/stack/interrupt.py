"""Ctrl-C and SIGTERM end a scenario in order: its work is cancelled, its programs are stopped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

INTERRUPTED = 130


def run(main: Callable[[], Coroutine[Any, Any, int]], said: Callable[[str], None]) -> int:
    """Run `main()` to its exit status.

    Ctrl-C gives 130. SIGTERM gives 0: whoever sent it asked for an orderly end and got it. Either
    way `said` is told that there is no result. Signals that follow do not disturb the clean-up,
    which is bounded in itself.
    """
    return asyncio.run(_run(main, said))


async def _run(main: Callable[[], Coroutine[Any, Any, int]], said: Callable[[str], None]) -> int:
    got: list[signal.Signals] = []
    task = asyncio.create_task(main(), name="scenario")
    loop = asyncio.get_running_loop()

    def asked(which: signal.Signals) -> None:
        if not got:
            got.append(which)
            said(f"{which.name}: stopping all programs; there will be no result")
            task.cancel()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, asked, each)
    try:
        return await task
    except asyncio.CancelledError:
        if not got:
            raise
        return INTERRUPTED if got[0] is signal.SIGINT else 0
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
