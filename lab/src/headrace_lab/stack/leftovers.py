"""What a stopped stack may have left: processes of its families, and listening ports."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

import psutil

from headrace_lab.stack.ports import bindable
from headrace_shared.clock import Clock

SETTLE_S = 2.0


def descendants(pids: Iterable[int]) -> list[psutil.Process]:
    """The processes and all that they started, as of now, by one look at the process table."""
    children: dict[int, list[psutil.Process]] = {}
    by_pid: dict[int, psutil.Process] = {}
    for process in psutil.process_iter(["ppid"]):
        by_pid[process.pid] = process
        children.setdefault(process.info["ppid"], []).append(process)
    found: dict[int, psutil.Process] = {}
    waiting = [by_pid[pid] for pid in pids if pid in by_pid]
    while waiting:
        process = waiting.pop()
        if process.pid not in found:
            found[process.pid] = process
            waiting += children.get(process.pid, [])
    return list(found.values())


def living(family: Iterable[psutil.Process], groups: Iterable[int]) -> list[psutil.Process]:
    """Those of `family` that still run, and any process in one of the process groups."""
    members, wanted = set(family), set(groups)
    found: dict[int, psutil.Process] = {}
    for process in [*members, *psutil.process_iter()]:
        try:
            ours = process in members or os.getpgid(process.pid) in wanted
            if ours and process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return [found[pid] for pid in sorted(found)]


async def settle(
    family: list[psutil.Process], groups: list[int], clock: Clock, within_s: float = SETTLE_S
) -> list[psutil.Process]:
    """`living`, given a moment: children end a little after their parents."""
    deadline = clock.now() + within_s
    while True:
        left = living(family, groups)
        if not left or clock.now() >= deadline:
            return left
        await asyncio.sleep(0.05)


def end(processes: Iterable[psutil.Process]) -> list[str]:
    """SIGKILL each; their names and ids, for the report."""
    named: list[str] = []
    for process in processes:
        try:
            named.append(f"{process.name()} (pid {process.pid})")
            process.kill()
        except psutil.NoSuchProcess:
            continue
    return named


def listening(ports: Iterable[int], host: str = "127.0.0.1") -> list[int]:
    """Those of `ports` that somebody still holds."""
    return [port for port in ports if not bindable(host, port)]
