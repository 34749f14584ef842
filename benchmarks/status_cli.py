"""What `headrace status` costs against a controller of 1,000 cells, as processor time of its process.

    make bench NAME=status_cli JSON=FILE

figures: `process_ms`, user and system time of one `headrace status` from its start to its end (the
median of all runs), `process_ms_p95`, `wall_ms`, `import_ms`, the part of it that loads modules
(`python -X importtime`), and `cells_process_ms`, the same of `headrace cells`, which shows them all.
The controller is a thread here that answers with ready-made pages; its time is not counted.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.integration.operator_cli.admin_fake import Admin, serving
from tests.support import fleet_pages as pages

from benchmarks.result import json_path, report

CELLS, SITES = 1000, 8
RUNS = 25
TIMEOUT_S = 60
PROGRAM = Path(sys.executable).with_name("headrace")


@dataclass(frozen=True, slots=True)
class Spent:
    """What one run took, in milliseconds."""

    process: float
    wall: float


def spent(command: Sequence[str | Path]) -> Spent:
    """Run a command that must succeed. Raises CalledProcessError."""
    before, began = _children_s(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S)
    ended = time.perf_counter()
    return Spent((_children_s() - before) * 1e3, (ended - began) * 1e3)


def _children_s() -> float:
    """Processor time of all children that have ended; finer than os.times, which counts in ticks."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def import_ms(command: Sequence[str | Path]) -> float:
    """What loading modules took in one run of a Python program, each module's own time summed."""
    run = [sys.executable, "-X", "importtime", *command]
    said = subprocess.run(run, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stderr
    own = [line.removeprefix("import time:").split("|")[0].strip() for line in said.splitlines()]
    return sum(int(each) for each in own if each.isdigit()) / 1e3


def publish(admin: Admin) -> None:
    """The pages of the region."""
    cells = pages.many(CELLS, SITES)
    admin.answer("/api/v1/status", pages.status(*cells))
    admin.answer("/api/v1/cells?limit=1000", pages.page(*cells))


def main() -> None:
    """Measure, and report."""
    path = json_path("What headrace status costs.")
    with serving() as admin:
        publish(admin)
        status = (PROGRAM, "status", "--url", admin.url)
        spent(status)  # Compiled files are written, once.
        runs = [spent(status) for _ in range(RUNS)]
        cells = [spent((PROGRAM, "cells", "--url", admin.url)) for _ in range(RUNS // 5)]
        loading = statistics.median(import_ms(status) for _ in range(RUNS // 5))
    process = sorted(run.process for run in runs)
    figures = {
        "process_ms": statistics.median(process),
        "process_ms_p95": process[round(0.95 * (len(process) - 1))],
        "wall_ms": statistics.median(run.wall for run in runs),
        "import_ms": loading,
        "cells_process_ms": statistics.median(run.process for run in cells),
    }
    report("status_cli", 0, figures, path, {"cells": CELLS, "sites": SITES, "runs": RUNS})


if __name__ == "__main__":
    main()
