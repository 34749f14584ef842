"""`headrace tail`: cells' heartbeats, line by line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from headrace_controller.operator_cli.client import CELLS, Client, Gone, Refused, cell_path, fail, gathered
from headrace_controller.operator_cli.follow import Absence
from headrace_controller.operator_cli.show import STATE_STYLE, figure, marks, print_json, print_parts
from headrace_controller.operator_cli.tables import Words, text
from headrace_controller.operator_cli.terminal import clean
from headrace_controller.operator_cli.top.columns import seconds
from headrace_shared.clock import Clock

SILENT_S: Final = 1.5
"""Three heartbeats: a cell that was not heard for so long is said to be silent."""
NEWER_S: Final = 0.05
"""Two looks see the same heartbeat where its moments are no further apart."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whose heartbeats: a cell's, a site's, or all; `count` 0 = without end."""

    cell: str = ""
    site: str | None = None
    count: int = 0
    interval_s: float = 1.0
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Beat:
    """A line of the tail: one cell at one look. `note` says what changed with it, "" = nothing."""

    at: float
    cell: Mapping[str, Any]
    note: str

    def as_json(self) -> dict[str, Any]:
        """The cell as the API gives it, when, and what changed."""
        return {"at": _iso(self.at), "note": self.note, "cell": self.cell}

    def words(self) -> Words:
        """The line for people."""
        cell, signals = self.cell, self.cell["signals"]
        parts = [
            _iso(self.at)[11:23],
            f"{cell['site']}/{cell['id']}",
            cell["state"],
            f"pressure {figure(cell['pressure'], '{:.3f}')}",
            f"weight {' '.join(str(weight) for _, weight in sorted(cell['weights'].items())) or '-'}",
            f"ttft {seconds(signals.get('ttft_p95_s'))}",
            f"queue {figure(signals.get('queue_depth'))}",
            f"kv {figure(signals.get('kv_fill'), '{:.0%}')}",
            f"gpu {figure(signals.get('compute_active'), '{:.0%}')}",
            f"rtt {figure(signals.get('rtt_ms'), '{:.1f}ms')}",
            f"heard {figure(cell['heartbeat_age_s'], '{:.1f}')} s ago",
            marks(dict(cell)),
            self.note,
        ]
        return text("  ".join(filter(None, map(clean, parts))), STATE_STYLE.get(cell["state"], ""))


@dataclass
class Watch:
    """Which heartbeats are new: what was known of each cell at the look before. Pure."""

    _heard: dict[str, float] = field(default_factory=dict)
    _states: dict[str, str] = field(default_factory=dict)
    _silent: set[str] = field(default_factory=set)

    def look(self, cells: list[dict[str, Any]], now: float, wall: float) -> Iterator[Beat]:
        """The lines of one look: `now` on a clock that never steps, `wall` seconds since the epoch."""
        for cell in cells:
            name, age = cell["id"], cell["heartbeat_age_s"]
            before = self._states.get(name)
            self._states[name] = cell["state"]
            note = "" if before in (None, cell["state"]) else f"{before} -> {cell['state']}: {cell['cause']}"
            newer = age is not None and now - age > self._heard.get(name, float("-inf")) + NEWER_S
            if newer:
                self._heard[name] = now - age
            note = note or self._silence(name, age)
            if newer or note:
                yield Beat(wall - (age or 0.0) if newer else wall, cell, note)
        gone = self._states.keys() - {cell["id"] for cell in cells}
        for name in gone:
            self._states.pop(name)
            self._heard.pop(name, None)
            self._silent.discard(name)

    def _silence(self, name: str, age: float | None) -> str:
        """A note when a cell falls silent or is heard again."""
        silent = age is not None and age > SILENT_S
        if silent and name not in self._silent:
            self._silent.add(name)
            return f"silent for {age:.1f} s"
        if not silent and name in self._silent:
            self._silent.discard(name)
            return "heard again"
        return ""


def tail(client: Client, clock: Clock, wanted: Wanted) -> None:
    """Print heartbeats until there were enough, or Ctrl-C; a controller that restarts is waited for."""
    watch, absence, told = Watch(), Absence(client), 0
    with suppress(KeyboardInterrupt), client.understood():
        cells = _read(wanted, lambda path, query: client.call("GET", path, query=query))
        if not cells:
            where = "" if wanted.site is None else f" at site {wanted.site!r}"
            fail(f"there is no cell{where}; `headrace status` shows the sites")
        while True:
            for beat in watch.look(cells, clock.now(), clock.wall_ns() / 1e9):
                print_json(beat.as_json(), indent=None) if wanted.as_json else print_parts([beat.words()])
                told += 1
                if told == wanted.count:
                    return
            time.sleep(wanted.interval_s)
            cells = _next(client, wanted, absence)


def _next(client: Client, wanted: Wanted, absence: Absence) -> list[dict[str, Any]]:
    """The cells, as soon as the controller answers."""
    while True:
        try:
            found = _read(wanted, lambda path, query: client.ask(path, query=query))
        except Gone as gone:
            absence.away(gone)
        except Refused as refused:
            fail(str(refused), refused.code)
        else:
            absence.back()
            return found


def _read(wanted: Wanted, ask: Callable[[str, dict[str, Any] | None], Any]) -> list[dict[str, Any]]:
    """The cells that are wanted. `ask` takes a path and a query."""
    if wanted.cell:
        return [ask(cell_path(wanted.cell), None)["cell"]]
    query = {} if wanted.site is None else {"site": wanted.site}
    cells: list[dict[str, Any]] = gathered(lambda query: ask(CELLS, query), query)["cells"]
    return cells


def _iso(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")
