"""One scenario live and in simulation, from one description."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from rich.console import Console

from headrace_lab.demo.result import records_path
from headrace_lab.live.ask import Ask
from headrace_lab.live.run import live as run_live
from headrace_lab.load.records import Record
from headrace_lab.sim.run import arrivals_of, run_arm, setup_of

NETWORK = "none"
"""Live programs stand side by side, so simulated ones do."""
LUCKS = 9
LUCKS_APART = 7919


async def live(ask: Ask, path: Path, console: Console) -> tuple[dict[str, list[Record]], bool]:
    """Records by arm of a live run whose result is kept at `path`, and whether it can be trusted."""
    status = await run_live(replace(ask, options=replace(ask.options, json_path=path)), console)
    return read_records(records_path(path)), status == 0


def read_records(path: Path) -> dict[str, list[Record]]:
    """The records of a live run's file, by arm. Raises OSError, ValueError."""
    names = {field.name for field in fields(Record)}
    found: dict[str, list[Record]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        record = Record(**{name: value for name, value in entry.items() if name in names})
        found.setdefault(str(entry["arm"]), []).append(record)
    return found


def simulate(ask: Ask, arm: str) -> list[Sequence[Record]]:
    """Records of simulations of one arm under the same load; they differ in luck alone."""
    setup, arrivals = setup_of(ask, NETWORK), arrivals_of(ask)
    runs: list[Sequence[Record]] = []
    for luck in range(LUCKS):
        lucky = replace(ask, options=replace(ask.options, seed=ask.seed + LUCKS_APART * luck))
        runs.append(run_arm(lucky, arm, setup, arrivals).seen.records)
    return runs
