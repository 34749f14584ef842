"""A matrix's workers end with the command, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("headrace-lab")
PATIENCE_S = 60.0
COMPUTES_S = 4.0
"""More CPU time than a worker takes to start."""


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def workers_of(pid: int) -> list[int]:
    """The children of a process that compute; a spawned process names itself so."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        if b"spawn_main" in words:
            found.append(int(child))
    return found


def cpu_s(pid: int) -> float:
    """What a process has computed, s."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_matrix(tmp_path: Path, how: signal.Signals) -> None:
    command = [str(PROGRAM), "matrix", "--out", str(tmp_path), "--loads", "long_context"]
    matrix = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ)
    )
    workers: list[int] = []
    try:
        # By then it has come through its start, and is at work.
        until(lambda: any(cpu_s(each) > COMPUTES_S for each in workers_of(matrix.pid)), "no worker has begun")
        workers = workers_of(matrix.pid)
        matrix.send_signal(how)
        matrix.wait(PATIENCE_S)
        until(lambda: not any(map(is_running, workers)), "a worker computes for nobody")
    finally:
        matrix.kill()
        matrix.wait(PATIENCE_S)
        for worker in filter(is_running, workers):
            os.kill(worker, signal.SIGKILL)
