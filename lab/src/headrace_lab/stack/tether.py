"""Runs a program that the kernel ends when the lab dies: `tether.py LAB_PID BEHIND PROGRAM ARGS...`.

BEHIND is added to the nice value. Started by path, without site-packages; the program replaces it, so the
process id stays the same.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def tied(command: Sequence[str], behind: int) -> list[str]:
    """The command that runs `command` tied to this process, `behind` it by so many nice values."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(behind), *command]


def tie(lab: int) -> None:
    """Let the kernel end this process when its parent `lab`, a process id, dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != lab:  # the lab died before the line above
        os._exit(1)


def main(argv: list[str]) -> int:
    """Tie this process to the lab's life and become the program; returns only on failure."""
    lab, behind, program = int(argv[0]), int(argv[1]), argv[2]
    tie(lab)
    os.nice(behind)
    try:
        os.execvp(program, argv[2:])  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"{program} cannot be started: {error.strerror or error}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
