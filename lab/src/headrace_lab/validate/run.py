"""Run the scenarios both ways, show how far they agree, write it."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace_lab.demo.display import number, say
from headrace_lab.demo.result import environment, tidy
from headrace_lab.live.ask import Ask
from headrace_lab.sim.scenarios import warm_up_s
from headrace_lab.tables import new_table
from headrace_lab.validate import both
from headrace_lab.validate.compare import AGREE, Comparison, compare, figures
from headrace_shared.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class Job:
    """What to validate; `json_path` None = nothing is kept."""

    asks: tuple[Ask, ...]
    json_path: Path | None
    quick: bool


async def validate(job: Job, console: Console) -> int:
    """0 if every live run can be trusted, 1 if one cannot; disagreement is a result, not a failure."""
    found: list[Comparison] = []
    trusted = True
    with ExitStack() as contexts:
        place = _place(job, contexts)
        for ask in job.asks:
            say(console, f"{ask.name}: live, then {both.LUCKS} simulations of each arm")
            records, worked = await both.live(ask, _path(job, place, ask.name), console)
            trusted = trusted and worked
            busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))
            for arm in ask.arms:
                # In a thread, so that Ctrl-C is heard meanwhile.
                sims = await asyncio.to_thread(both.simulate, ask, arm)
                found.append(
                    compare(ask.name, arm, ask.rps, records.get(arm, []), sims, warm_up_s(ask), busy)
                )
                say(console, f"  {_told(found[-1])}")
    show(console, found)
    if job.json_path is not None:
        write(job.json_path, job, found, trusted, SystemClock())
        say(console, f"result in {job.json_path}")
    return 0 if trusted else 1


def _place(job: Job, contexts: ExitStack) -> Path:
    if job.json_path is not None:
        return job.json_path.parent
    return Path(contexts.enter_context(tempfile.TemporaryDirectory(prefix="headrace-validate-")))


def _path(job: Job, place: Path, scenario: str) -> Path:
    """Where a scenario's live result goes."""
    stem = job.json_path.stem if job.json_path is not None else "validate"
    return place / f"{stem}.{scenario}.live.json"


def _told(each: Comparison) -> str:
    sides = ", ".join(
        f"{name.upper()} {number(side.live, '.0f')} ms live, {number(side.sim, '.0f')} in sim "
        f"({number(None if side.difference is None else 100 * side.difference, '+.1f')} %)"
        for name, side in each.sides.items()
    )
    return f"arm {each.arm}: {sides}: {'agrees' if each.agrees else 'differs'}"


def show(console: Console, found: Sequence[Comparison]) -> None:
    """A row for each scenario and arm; where they differ, why."""
    table = new_table(
        f"First tokens live and in simulation; they agree within {AGREE:.0%}",
        left=("scenario", "arm"),
        right=(
            "P50 live ms",
            "sim",
            "differs",
            "P95 live ms",
            "sim",
            "luck",
            "differs",
            "driver late P99 ms",
        ),
    )
    for each in found:
        p50, p95 = each.sides["p50"], each.sides["p95"]
        table.add_row(
            each.scenario,
            each.arm,
            number(p50.live, ".0f"),
            number(p50.sim, ".0f"),
            _percent(p50.difference),
            number(p95.live, ".0f"),
            number(p95.sim, ".0f"),
            f"{number(p95.sim_low, '.0f')}-{number(p95.sim_high, '.0f')}",
            _percent(p95.difference),
            number(each.host.late_p99_ms, ".1f"),
        )
    console.print(table)
    for each in found:
        for reason in each.reasons():
            say(console, f"{each.scenario}, {each.arm}: {reason}")


def _percent(value: float | None) -> str:
    return number(None if value is None else 100 * value, "+.1f") + " %"


def write(path: Path, job: Job, found: Sequence[Comparison], trusted: bool, clock: Clock) -> None:
    """Write the result. Raises OSError."""
    text = json.dumps(as_json(job, found, trusted, clock), indent=2, allow_nan=False, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def as_json(job: Job, found: Sequence[Comparison], trusted: bool, clock: Clock) -> dict[str, Any]:
    """The file's content."""
    return {
        "scenario": "validate",
        "mode": "live and sim",
        "seed": job.asks[0].seed if job.asks else 0,
        "seconds": max((ask.seconds for ask in job.asks), default=0.0),
        "quick": job.quick,
        "worked": trusted,
        "figures": {name: tidy(value) for name, value in figures(found).items()},
        "comparisons": [
            {
                "scenario": each.scenario,
                "arm": each.arm,
                "rps": each.rps,
                "requests": each.requests,
                "agrees": each.agrees,
                "reasons": each.reasons(),
                "sides": {
                    name: {**asdict(side), "difference": side.difference} for name, side in each.sides.items()
                },
                "host": asdict(each.host),
            }
            for each in found
        ],
        "environment": environment(clock),
    }
