"""Silent agents: whose time is up, whom to ask, and when so many are silent that it is us.

An agent's silence says nothing of its engines. What follows from it depends on `on_silence`: the
engine is asked (`confirm`), or the cell is given up (`fail`). The grace of a planned goodbye puts
off the giving up and the alarm, but no question: a host that is shut down says goodbye as well, and
its engines' refusal is no silence.

Self-preservation withholds these conclusions when more than `self_preservation_share` of the
READY cells fell silent within one window: then the likelier fault is this controller's network.
It needs at least three READY cells, and silent ones on at least two nodes: one dead host is one
failure, however many cells it takes along, and in a fleet of one or two cells a majority proves
nothing, so there the engine's own answer (or the lack of it) decides.

A controller that was itself late has not listened in the meantime. Its lateness is taken off
every silence, and after one of more than `_LATE_SHARE` of the TTL no TTL fires for as long as it
lasted. Only a silence of three TTLs net of all lateness overrides that, so that a machine that
is always late still notices the dead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace_controller.inventory import Fleet, RowMemory
from headrace_controller.inventory.columns import Flags, Floats, Ints
from headrace_controller.lifecycle.states import NEVER, CellState
from headrace_controller.settings import LifecycleSettings

_LATE_SHARE: Final = 0.25
_SURELY_SILENT: Final = 3.0
# The beats of different agents lie up to one liveness interval apart. Counting as suspect who is
# past this share of the TTL makes the first expiry of an outage see the whole of it.
_SUSPECT_SHARE: Final = 0.6
# Most questions of one scan, those first that were asked longest ago. A controller that is behind
# hears nobody in time; to ask every engine then would keep it behind for good.
_ASKED_AT_ONCE: Final = 128
_ASKED_UNDER_ALARM: Final = 16
LEAST_READY: Final = 3
LEAST_NODES: Final = 2


@dataclass(frozen=True, slots=True)
class Silence:
    """The outcome of a scan; arrays hold rows.

    `ask`: engines to ask now. `dead`: cells to give up. `withheld`: now among too many
    silent ones. `alarm`: self-preservation is on. `share`: of the READY cells, how many count as silent.
    """

    ask: Ints
    dead: Ints
    withheld: Ints
    alarm: bool
    share: float


class SilenceWatch:
    """Scans all rows once a tick."""

    def __init__(self, settings: LifecycleSettings) -> None:
        self._settings = settings
        self._memory = RowMemory(
            {"asked_at": NEVER, "heard": NEVER, "late_at": 0.0, "withheld": False, "unanswered": 0}
        )
        self._late_total = 0.0
        self._last_late = 0.0
        self._quiet_until = NEVER
        self.alarm = False

    def use(self, settings: LifecycleSettings) -> None:
        """Other times are in force from now on."""
        self._settings = settings

    def scan(self, fleet: Fleet, now: float, lateness: float = 0.0) -> Silence:
        """Judge every LOADING, READY and DRAINING row; `lateness` is by how many seconds this
        tick came too late."""
        self._memory.follow(fleet)
        age = self._age(fleet, now, max(0.0, lateness))
        overdue = np.minimum(age, now - fleet.hold_until[: fleet.size])
        state = fleet.state[: fleet.size]
        ready = state == CellState.READY
        watched = ready | (state == CellState.LOADING) | (state == CellState.DRAINING)
        if not self.alarm and not (watched & (age > self._settings.ttl_s * _SUSPECT_SHARE)).any():
            self._memory["withheld"][:] = False
            return Silence(_none(), _none(), _none(), False, 0.0)
        share, newly = self._preserve(fleet, ready, overdue)
        if self._settings.on_silence == "fail":
            dead = watched & self._due(overdue, now) & ~self._memory["withheld"]
            return Silence(_none(), np.flatnonzero(dead), newly, self.alarm, share)
        asked_at = self._memory["asked_at"]
        ask = watched & self._due(age, now) & (now - asked_at >= self._settings.confirm_interval_s)
        rows = np.flatnonzero(ask)
        limit = _ASKED_UNDER_ALARM if self.alarm else _ASKED_AT_ONCE
        if len(rows) > limit:
            rows = rows[np.argsort(asked_at[rows], kind="stable")[:limit]]
        asked_at[rows] = now
        return Silence(rows, _none(), newly, self.alarm, share)

    def is_withheld(self, row: int) -> bool:
        """True when no conclusion may be drawn from the row's silence."""
        return row < len(self._memory["withheld"]) and bool(self._memory["withheld"][row])

    def note_answer(self, row: int) -> None:
        """The engine of a row that was scanned answered: the questions before it count no more."""
        self._memory["unanswered"][row] = 0

    def note_no_answer(self, row: int) -> int:
        """Count one more unanswered question to the engine of a row that was scanned; how many
        there are in a row, within this silence."""
        self._memory["unanswered"][row] += 1
        return int(self._memory["unanswered"][row])

    def _age(self, fleet: Fleet, now: float, lateness: float) -> Floats:
        """How long each row has been silent, less this loop's own lateness meanwhile."""
        n = fleet.size
        heard = fleet.last_heard[:n]
        before, self._late_total = self._late_total, self._late_total + lateness
        memory = self._memory
        fresh = heard != memory["heard"]
        if fresh.any():
            # A beat read before this tick's stall has the stall taken off; one read after it has not.
            since = np.where(heard <= now - lateness, before, self._late_total) if lateness else before
            np.copyto(memory["late_at"], since, where=fresh)
            np.copyto(memory["unanswered"], 0, where=fresh)
            memory["heard"][:] = heard
        if lateness > _LATE_SHARE * self._settings.ttl_s:
            self._quiet_until = max(self._quiet_until, now + lateness)
            self._last_late = lateness
        age: Floats = now - heard - (self._late_total - self._memory["late_at"])
        return age

    def _due(self, age: Floats, now: float) -> Flags:
        ttl = self._settings.ttl_s
        surely = age > max(_SURELY_SILENT * ttl, self._last_late + ttl)
        return surely if now < self._quiet_until else age > ttl

    def _preserve(self, fleet: Fleet, ready: Flags, age: Floats) -> tuple[float, Ints]:
        """Update `withheld` and the alarm; the silent share and the rows newly withheld."""
        settings, withheld = self._settings, self._memory["withheld"]
        suspect = ready & (age > settings.ttl_s * _SUSPECT_SHARE)
        recent = age <= settings.ttl_s + settings.self_preservation_window_s
        silent = suspect & (recent | withheld)
        count = int(ready.sum())
        share = float(silent.sum()) / count if count else 0.0
        due = silent & (age > settings.ttl_s)
        self.alarm = (
            bool(due.any())
            and count >= LEAST_READY
            and share > settings.self_preservation_share
            and _several_nodes(fleet, silent)
        )
        newly = np.flatnonzero(due & ~fleet.telemetry_lost[: fleet.size]) if self.alarm else _none()
        withheld[:] = silent if self.alarm else False
        return share, newly


def _several_nodes(fleet: Fleet, rows: Flags) -> bool:
    nodes: set[str] = set()
    for row in np.flatnonzero(rows):
        nodes.add(fleet.facts_of(int(row)).node)
        if len(nodes) >= LEAST_NODES:
            return True
    return False


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)
