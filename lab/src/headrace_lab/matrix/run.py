"""Run the matrix on two processes, show it, write it."""

from __future__ import annotations

import csv
import json
import math
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace_lab.demo.display import number, say
from headrace_lab.demo.result import environment, tidy
from headrace_lab.matrix.summary import Line, figures, summarise
from headrace_lab.matrix.work import Piece, Row, work
from headrace_lab.scenarios import Catalogue
from headrace_lab.tables import new_table
from headrace_shared.clock import Clock

PROCESSES = 2
QUICK_LOADS = ("baseline_mixed", "code_heavy", "rag_multidoc")
QUICK_TIER = "middle"
LONGEST_S = 3600.0
SEEDS_APART = 1000


def pieces(catalogue: Catalogue, fleet: str, quick: bool, traces: bool, seed: int) -> list[Piece]:
    """All pieces of a fleet's matrix, those that take longest first."""
    loads = QUICK_LOADS if quick else catalogue.matrix_loads
    names = (*loads, *(catalogue.matrix_traces if traces else ()))
    tiers = (QUICK_TIER,) if quick else tuple(catalogue.tiers)
    repetitions = 1 if quick else catalogue.counting.repetitions
    return [
        Piece(
            fleet,
            load,
            catalogue.matrix_arms,
            tiers,
            repetition,
            seed + SEEDS_APART * repetition,
            seed,
            quick,
        )
        for load in reversed(names)
        for repetition in range(repetitions)
    ]


def run(planned: Sequence[Piece], said: Callable[[str], None], processes: int = PROCESSES) -> list[Row]:
    """Work on all pieces; raises whatever a piece raises."""
    rows: list[Row] = []
    # A fresh interpreter for each worker: forking one that has threads is not safe.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        under_way = {pool.submit(work, piece): piece for piece in planned}
        for number_done, future in enumerate(as_completed(under_way, timeout=LONGEST_S), 1):
            piece = under_way[future]
            done = future.result()
            rows += done
            said(
                f"{number_done} of {len(planned)}: {piece.load}, repetition {piece.repetition}: {_told(done)}"
            )
    loads = list(dict.fromkeys(piece.load for piece in reversed(planned)))
    return sorted(rows, key=lambda row: (loads.index(row.load), row.repetition))


def _told(rows: Iterable[Row]) -> str:
    shown = [row for row in rows if row.tier == QUICK_TIER]
    return (
        ", ".join(f"{row.arm} {number(row.sustainable_rps, '.2f')}" for row in shown) + f" RPS ({QUICK_TIER})"
    )


def matrix(
    catalogue: Catalogue,
    fleet: str,
    quick: bool,
    traces: bool,
    seed: int,
    out: Path,
    console: Console,
    clock: Clock,
) -> None:
    """Run a fleet's matrix and write `matrix.FLEET.csv` and `.json` into `out`. Raises OSError."""
    planned = pieces(catalogue, fleet, quick, traces, seed)
    say(console, f"matrix of {fleet}: {len(planned)} pieces on {PROCESSES} processes, in simulation")
    began = clock.now()
    rows = run(planned, lambda text: say(console, text))
    counting = catalogue.counting
    lines = summarise(rows, counting.resamples, counting.confidence)
    took_s = clock.now() - began
    say(console, f"took {took_s:.0f} s")
    show(console, lines)
    write(out, fleet, rows, lines, {"quick": quick, "seed": seed, "took_s": round(took_s, 1)}, clock)
    say(console, f"written to {out}")


def show(console: Console, lines: Sequence[Line]) -> None:
    """One table: a row for each load and tier, the arms side by side."""
    arms = list(dict.fromkeys(line.arm for line in lines))
    table = new_table(left=("load", "tier"), right=("SLO ms", *arms, *(f"{arm} / rr" for arm in arms[1:])))
    for load, tier in dict.fromkeys((line.load, line.tier) for line in lines):
        own = {line.arm: line for line in lines if (line.load, line.tier) == (load, tier)}
        first = next(iter(own.values()))
        table.add_row(
            load,
            tier,
            number(first.slo_ms, ".0f"),
            *(number(own[arm].sustainable_rps.value, ".2f") for arm in arms),
            *(_ratio(own[arm]) for arm in arms[1:]),
        )
    console.print(table)


def _ratio(line: Line) -> str:
    mark = "" if line.apart_from_rr else " ~"
    return f"{number(line.vs_rr.value, '.2f')}{mark}"


def write(
    out: Path, fleet: str, rows: Sequence[Row], lines: Sequence[Line], more: dict[str, Any], clock: Clock
) -> None:
    """The rows as CSV; rows, lines and figures as JSON. Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / f"matrix.{fleet}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        names = [field.name for field in fields(Row)]
        writer.writerow(names)
        for row in rows:
            writer.writerow([getattr(row, name) for name in names])
    data = {
        "scenario": f"matrix/{fleet}",
        "mode": "sim",
        **more,
        "figures": {name: tidy(value) for name, value in figures(lines).items()},
        "lines": [_finite(asdict(line)) for line in lines],
        "rows": [_finite(asdict(row)) for row in rows],
        "environment": environment(clock),
    }
    text = json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False)
    (out / f"matrix.{fleet}.json").write_text(text + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
