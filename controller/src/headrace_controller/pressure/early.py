"""Early warning: what GPUs say before the engine's own figures move.

One CUSUM chart for each cell and kind of evidence (docs/adr says why and how often it is wrong):
S <- max(0, S + (evidence - allowance) x time), an alert where S reaches its limit, over where it has
fallen to half of it. S is bounded, so that an alert ends soon after its cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Fleet, RowMemory
from headrace_controller.inventory.columns import NEVER
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure.evidence import KINDS, LIMIT, HealthReader
from headrace_controller.settings import EarlyWarningSettings

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

INTERVAL_S: Final = 1.0
"""Counters and temperatures are read about once a second; looking more often finds nothing more."""
_LONGEST_STEP_S: Final = 5.0
_MOST: Final = 2.0
_OVER: Final = 0.5


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that began or ended. `at` on the controller's clock; `kind` is one of KINDS; `said` is
    the figure that stands behind it, for people."""

    at: float
    cell_id: str
    kind: str
    began: bool
    said: str


@dataclass(frozen=True, slots=True)
class Warnings:
    """All charts at one look. `charts` (n, kinds) are over their limits, 1 = an alert begins, at most 2;
    `alerts` (n, kinds) are on; `added` (n,) to the pressures."""

    charts: Floats
    alerts: Flags
    added: Floats


class EarlyWarning:
    """Keeps the charts of all cells, and looks at the figures once a second."""

    def __init__(self, settings: EarlyWarningSettings, stale_after_s: float) -> None:
        self._settings = settings
        self._reader = HealthReader(settings, stale_after_s)
        self._chart = RowMemory({"chart": 0.0, "alert": False}, width=len(KINDS))
        self._since = RowMemory({"alert_at": np.inf})
        self._looked_at = NEVER
        self._rows = 0
        self._warnings: Warnings | None = None

    def use(self, settings: EarlyWarningSettings, stale_after_s: float) -> None:
        """Other settings are in force from now on; the charts go on as they stand."""
        self._settings = settings
        self._reader.use(settings, stale_after_s)
        self._rows = 0

    @property
    def alert_at(self) -> Floats:
        """(n,): since when each cell has had some alert without a break; inf = it has none."""
        return self._since["alert_at"]

    def tick(self, fleet: Fleet, now: float) -> tuple[Warnings | None, tuple[Alert, ...]]:
        """What stands against cells, None = nothing against any, and the alerts that began or ended.
        Between two looks the last word stands."""
        if not self._settings.enabled:
            return None, ()
        changes: tuple[Alert, ...] = ()
        if now - self._looked_at >= INTERVAL_S:
            self._chart.follow(fleet)
            self._since.follow(fleet)
            elapsed = min(now - self._looked_at, _LONGEST_STEP_S)
            self._looked_at = now
            changes = self._step(fleet, now, elapsed)
            self._note(fleet)
        elif self._rows != fleet.rows_version:
            self._chart.follow(fleet)
            self._since.follow(fleet)
            self._note(fleet)
        return self._warnings, changes

    def _step(self, fleet: Fleet, now: float, elapsed: float) -> tuple[Alert, ...]:
        beyond = self._reader.read(fleet, now, elapsed)
        chart, alert = self._chart["chart"], self._chart["alert"]
        # What is not measured says nothing; what was known of it fades.
        fading = -chart * (1.0 - np.exp(-elapsed / self._settings.forget_s))
        chart += np.where(np.isnan(beyond), fading, beyond)
        np.clip(chart, 0.0, _MOST * LIMIT, out=chart)
        now_on = (chart >= LIMIT) | (alert & (chart > _OVER * LIMIT))
        if not now_on.any() and not alert.any():
            return ()
        changed = now_on != alert
        alert[:] = now_on
        at = self._since["alert_at"]
        at[:] = np.where(now_on.any(axis=1), np.minimum(at, now), np.inf)
        return tuple(
            self._alert(fleet, row, kind, bool(now_on[row, kind]), now)
            for row, kind in np.argwhere(changed).tolist()
            if fleet.generation[row]
        )

    def _alert(self, fleet: Fleet, row: int, kind: int, began: bool, now: float) -> Alert:
        said = self._reader.describe(fleet, row, KINDS[kind])
        return Alert(now, fleet.facts_of(row).cell_id, KINDS[kind], began, said)

    def _note(self, fleet: Fleet) -> None:
        self._rows = fleet.rows_version
        chart, alert = self._chart["chart"], self._chart["alert"]
        self._warnings = None
        if chart.any():
            charts = chart / LIMIT
            worst = np.where(alert, np.minimum(charts, 1.0), 0.0).max(axis=1)
            self._warnings = Warnings(charts, alert.copy(), self._settings.weight * worst)


def choose_drains(fleet: Fleet, early: EarlyWarning, settings: EarlyWarningSettings, now: float) -> list[str]:
    """The cells to drain because their alert has lasted, one a pool at a time, and only while at least half
    of the cells of each of its pools stay READY: what makes a whole site hot must not take the site out,
    cell by cell, each with the load of those before it."""
    if not (settings.enabled and settings.drain):
        return []
    n, pools = fleet.size, fleet.pools()
    ready = fleet.state[:n] == CellState.READY
    asked = ready & ~fleet.held[:n] & ~fleet.telemetry_lost[:n]
    asked &= now - early.alert_at >= settings.drain_after_s
    if not asked.any():
        return []
    count = len(pools.models)
    left = np.bincount(pools.pool[ready[pools.row]], minlength=count) - 1
    enough = (left > 0) & (2 * left >= np.bincount(pools.pool, minlength=count))
    draining = fleet.state[:n] == CellState.DRAINING
    busy = np.bincount(pools.pool[draining[pools.row]], minlength=count) > 0
    chosen = []
    for row in np.flatnonzero(asked).tolist():
        own = pools.pool[pools.row == row]
        if len(own) and enough[own].all() and not busy[own].any():
            busy[own] = True
            chosen.append(fleet.facts_of(row).cell_id)
    return chosen
