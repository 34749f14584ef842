"""What people see while a run goes on: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headrace_lab.demo.fleet import Fleet
from headrace_lab.demo.observe import CellView, Observer
from headrace_lab.load.driver import Driver
from headrace_lab.load.records import Record
from headrace_lab.load.summary import percentiles
from headrace_lab.tables import new_table
from headrace_shared.clock import Clock

REFRESH_S = 0.5
LINE_S = 5.0
PICTURE_WIDTH = 118
RECENT_S = 10.0
COLOURS = {"READY": "green", "LOADING": "yellow", "DRAINING": "yellow", "FAILED": "red", "TERMINATED": "red"}
TEXTS = ("site", "cell", "state")
FIGURES = ("pressure", "weight", "share 10 s", "share", "in flight", "TTFT p50", "TTFT p95")


def number(value: float | None, form: str = ".1f") -> str:
    """A figure for people; a dash where there is none."""
    return "-" if value is None else format(value, form)


def share(part: int, whole: int) -> str:
    """A share in percent; a dash where the whole is nothing."""
    return f"{part / whole:.1%}" if whole else "-"


@dataclass(slots=True)
class Panel:
    """Builds the table and the progress line of a run; `notes` are its events so far."""

    fleet: Fleet
    observer: Observer
    driver: Driver
    seconds: float
    clock: Clock
    notes: list[str] = field(default_factory=list)

    @property
    def elapsed(self) -> float:
        """Seconds since the load began; 0 before."""
        return 0.0 if self.driver.started_at is None else self.clock.now() - self.driver.started_at

    def recent(self) -> list[Record]:
        """Records of requests that ended in the last 10 s."""
        since = self.elapsed - RECENT_S
        return [r for r in self.driver.records[-5000:] if r.ended_s >= since]

    def line(self) -> str:
        """One line of progress."""
        records, last = self.driver.records, self.observer.history.last
        ttft = percentiles([r.ttft_ms for r in self.recent() if r.ttft_ms is not None])
        states = "no answer from the controller" if last is None else f"{len(last.ready())} READY"
        return (
            f"{min(self.elapsed, self.seconds):5.1f} s of {self.seconds:g}: {len(records)} requests over, "
            f"{sum(r.ok for r in records)} good, {self.driver.in_flight} in flight; {states} of "
            f"{len(self.fleet.cells)}; TTFT p50 {number(ttft['p50'])} ms, p95 {number(ttft['p95'])} ms"
        )

    def table(self) -> Group:
        """The whole picture."""
        table = new_table(left=TEXTS, right=FIGURES)
        last = self.observer.history.last
        recent, overall = self.recent(), self.driver.records
        for site in self.fleet.sites:
            for cell in site.cells:
                view = last.cells.get(cell.id) if last else None
                table.add_row(site.name, cell.id, *self._row(cell.id, view, recent, overall))
            table.add_section()
        lines = [Text(self.line()), *map(Text, self.notes)]
        if self.observer.trouble:
            lines.append(Text(self.observer.trouble, style="red"))
        return Group(table, *lines)

    def _row(
        self, cell: str, view: CellView | None, recent: Sequence[Record], overall: Sequence[Record]
    ) -> list[str | Text]:
        mine = [r for r in recent if r.cell == cell]
        ttft = percentiles([r.ttft_ms for r in mine if r.ttft_ms is not None])
        shares = [
            share(len(mine), sum(bool(r.cell) for r in recent)),
            share(sum(r.cell == cell for r in overall), sum(bool(r.cell) for r in overall)),
        ]
        tail: list[str | Text] = [*shares, "-" if view is None else number(view.in_flight, ".0f")]
        tail += [number(ttft["p50"]), number(ttft["p95"])]
        if view is None:
            return ["unknown", "-", "-", *tail]
        state = Text(view.state, style=COLOURS.get(view.state, ""))
        return [state, number(view.pressure, ".3f"), str(view.weight) if view.weight else "-", *tail]


def picture(panel: Panel, title: str) -> str:
    """The table as it stands, as SVG that needs nothing from elsewhere."""
    console = Console(
        record=True, width=PICTURE_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(panel.table())
    svg = console.export_svg(title=title)
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)


async def show(panel: Panel, console: Console) -> None:
    """Show the panel until cancelled; its last picture stays."""
    if not console.is_terminal:
        await _lines(panel, console)
        return
    with Live(panel.table(), console=console, auto_refresh=False, transient=False) as live:
        try:
            while True:
                await asyncio.sleep(REFRESH_S)
                live.update(panel.table(), refresh=True)
        finally:
            live.update(panel.table(), refresh=True)


async def _lines(panel: Panel, console: Console) -> None:
    told = 0
    due = panel.clock.now() + LINE_S
    while True:
        await asyncio.sleep(REFRESH_S)
        for note in panel.notes[told:]:
            say(console, f"      {note}")
        told = len(panel.notes)
        if panel.clock.now() >= due:
            due += LINE_S
            say(console, panel.line())


def say(console: Console, text: str) -> None:
    """Print a plain line: no markup, no wrapping, no colours."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
