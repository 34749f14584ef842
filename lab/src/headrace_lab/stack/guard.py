"""Ends what programs leave behind when the lab itself is killed.

The tether covers the lab's direct children; a program's own children (an engine's worker
processes) would live on. This process reads `+GROUP` and `-GROUP` lines from the lab and, when
the pipe breaks, kills every process group that was not taken off the list.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable

MAX_GROUPS = 4096


def remaining(lines: Iterable[str]) -> set[int]:
    """The process groups that the lines leave on the list; lines of another form are ignored."""
    groups: set[int] = set()
    for line in lines:
        sign, number = line[:1], line[1:].strip()
        if not (number.isascii() and number.isdigit()) or int(number) <= 1:
            continue
        if sign == "+" and len(groups) < MAX_GROUPS:
            groups.add(int(number))
        elif sign == "-":
            groups.discard(int(number))
    return groups


def main() -> int:
    """Read until the lab closes the pipe, then kill what is left."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    for group in remaining(sys.stdin):
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    return 0


if __name__ == "__main__":
    sys.exit(main())
