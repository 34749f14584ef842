"""A command that runs to its end: output to a log, progress for people, bounded in time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headrace_lab.stack import tether
from headrace_lab.stack.program import StackError, tail
from headrace_shared.clock import Clock

SAY_EVERY_S = 15.0


async def run_once(
    what: str,
    command: Sequence[str],
    log: Path,
    clock: Clock,
    *,
    within_s: float,
    said: Callable[[str], None],
    env: Mapping[str, str] | None = None,
) -> None:
    """Run `command`; `said` hears of it at its start and every 15 s.

    Raises StackError, with the end of its log, when it fails or takes longer than `within_s`.
    Whatever ends the wait, nothing of its process group is left.
    """
    said(f"{what} ...")
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *tether.tied(command, behind=0),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    started = clock.now()
    try:
        while True:
            try:
                async with asyncio.timeout(SAY_EVERY_S):
                    code = await process.wait()
                break
            except TimeoutError:
                took = clock.now() - started
                if took > within_s:
                    raise StackError(f"{what}: not done after {took:.0f} s; see {log}") from None
                said(f"{what}: {took:.0f} s so far")
    finally:
        _end_group(process.pid)
        if process.returncode is None:
            await process.wait()
    if code != 0:
        raise StackError(f"{what}: failed with status {code}. The end of {log}:\n{tail(log)}")


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return  # all of it has ended, as it should
