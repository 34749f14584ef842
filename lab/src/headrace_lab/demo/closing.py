"""The closing summary: the cells, the figures, the checks, the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from headrace_lab.demo.display import number, say
from headrace_lab.demo.figures import Shares
from headrace_lab.demo.result import Check, Result
from headrace_lab.stack.stack import StopReport
from headrace_lab.tables import new_table


def latencies(console: Console, name: str, arm: Mapping[str, Any]) -> None:
    """Print one arm's counts and percentiles."""
    rate = arm["success_rate"]
    say(console, f"\n{name}: {arm['requests']} requests, success {number(rate, '.2%')}")
    for label, key in (("time to first token", "ttft_ms"), ("end to end", "e2e_ms")):
        values = ", ".join(f"{q} {number(value)} ms" for q, value in arm[key].items())
        say(console, f"  {label}: {values}")


def shares_table(console: Console, found: Mapping[str, Shares], arm: Mapping[str, Any]) -> None:
    """Print each cell's requests against what its weights promised."""
    columns = ("requests", "errors", "share", "by weight", "gap")
    table = new_table("requests by cell", left=("cell",), right=columns)
    for cell, row in arm["per_cell"].items():
        pair = found.get(cell)
        compared = ("-", "-", "-")
        if pair is not None:
            compared = (f"{pair.actual:.1%}", f"{pair.expected:.1%}", f"{pair.gap_points:.1f} points")
        table.add_row(cell, str(row["requests"]), str(row["errors"]), *compared)
    console.print(table)


def stops(console: Console, report: StopReport) -> None:
    """Say how the programs ended."""
    asked = [e for e in report.exits if e.sigterm_s is not None]
    slowest = max(asked, key=lambda e: e.sigterm_s or 0.0, default=None)
    if slowest is not None:
        took = f"the slowest ({slowest.name}) in {slowest.sigterm_s:.2f} s"
        say(console, f"{len(asked)} programs ended on SIGTERM, {took}")
    for each in asked:
        if each.killed or each.code != 0:
            how = "needed SIGKILL" if each.killed else f"exit status {each.code}"
            say(console, f"  {each.name}: {how}")
    for process in report.processes:
        say(console, f"  left running, now killed: {process}")
    for port in report.ports:
        say(console, f"  port {port} is still held")


def checks_table(console: Console, checks: tuple[Check, ...]) -> None:
    """Print each condition with what was found and what was wanted."""
    table = new_table("checks", left=("", "what", "found", "wanted"))
    for check in checks:
        mark = Text("ok", style="green") if check.ok else Text("FAILED", style="red")
        if not check.enforced:
            mark = Text("ok" if check.ok else "shown only", style="dim")
        table.add_row(mark, Text(check.name), Text(check.found), Text(check.wanted))
    console.print(table)


def verdict(console: Console, result: Result) -> None:
    """The last line: did the job work, and if not, which checks say so."""
    if result.worked:
        console.print(Text(f"{result.scenario} works.", style="bold green"))
        return
    failed = ", ".join(check.name for check in result.checks if check.enforced and not check.ok)
    console.print(Text(f"{result.scenario} did not work: {failed}", style="bold red"), soft_wrap=True)
