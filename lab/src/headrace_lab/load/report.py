"""Send a load from a command and say what came back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from headrace_lab.load.arrivals import Arrival
from headrace_lab.load.driver import REFUSED, Driver, Limits, Target
from headrace_lab.load.records import Record, write_ndjson
from headrace_lab.load.summary import arm
from headrace_lab.tables import new_console, new_table
from headrace_shared.clock import SystemClock


def send(planned: list[Arrival], target: Target, limits: Limits, seed: int, out: Path | None) -> bool:
    """Send, write the records to `out`, print a summary; True if any request was good."""
    records = asyncio.run(_send(planned, target, limits, seed))
    if out is not None:
        write_ndjson(out, records)
    report(new_console(), records)
    return any(r.ok for r in records)


async def _send(planned: list[Arrival], target: Target, limits: Limits, seed: int) -> list[Record]:
    return await Driver(target, SystemClock(), limits, seed).run(planned)


def report(console: Console, records: list[Record]) -> None:
    """Print what came back: latencies, shares, and what went wrong."""
    figures = arm(records, sorted({r.cell for r in records if r.cell}))
    table = new_table(f"{len(records)} requests", left=("",), right=("p50 ms", "p95 ms", "p99 ms"))
    for name, key in (("time to first token", "ttft_ms"), ("end to end", "e2e_ms")):
        values = [figures[key][q] for q in ("p50", "p95", "p99")]
        table.add_row(name, *("-" if value is None else f"{value:.1f}" for value in values))
    console.print(table)
    good = sum(r.ok for r in records)
    console.print(f"good: {good} of {len(records)}; not sent: {sum(r.error == REFUSED for r in records)}")
    for cell, row in figures["per_cell"].items():
        console.print(f"  {cell}: {row['requests']} requests ({row['share']:.1%}), {row['errors']} errors")
    for text, count in faults(records)[:5]:
        console.print(f"  {count} x {text}", markup=False, highlight=False, soft_wrap=True)


def faults(records: Iterable[Record]) -> list[tuple[str, int]]:
    """What went wrong and how often, most frequent first; texts that differ in numbers are one."""
    counts: dict[str, int] = {}
    examples: dict[str, str] = {}
    for record in records:
        if record.ok:
            continue
        text = f"HTTP {record.status}: {record.error}" if record.status else record.error
        key = examples.setdefault(re.sub(r"\d+", "N", text), text)
        counts[key] = counts.get(key, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])
