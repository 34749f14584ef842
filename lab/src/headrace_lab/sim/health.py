"""Envoy's active health checks: so many failures in a row mark a host, one success takes it back."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from headrace_lab.scenarios.settings import GatewayPlan
from headrace_lab.sim.calendar import Calendar
from headrace_lab.sim.cells import Condition, SimCell
from headrace_lab.sim.paths import SitePath


class HealthChecks:
    """Checks every cell at its own phase; `on_change` is called when `unhealthy` has changed."""

    def __init__(
        self,
        calendar: Calendar,
        cells: Mapping[str, SimCell],
        paths: Mapping[str, SitePath],
        plan: GatewayPlan,
        seed: int,
        on_change: Callable[[float], None],
    ) -> None:
        self.unhealthy: set[str] = set()
        self._calendar = calendar
        self._cells, self._paths, self._plan = cells, paths, plan
        self._failures = dict.fromkeys(cells, 0)
        self._on_change = on_change
        rng = random.Random(f"{seed}/checks")
        now = calendar.clock.now()
        for name in cells:
            calendar.enter(now + rng.random() * plan.health_interval_s, self._check, name)

    def _check(self, now: float, name: str) -> None:
        cell = self._cells[name]
        path = self._paths[cell.plan.site]
        silent = not path.passes or cell.condition is Condition.HUNG
        took = self._plan.health_timeout_s if silent else 2 * path.mean_s
        well = not silent and cell.condition is Condition.SERVING
        self._calendar.enter(now + took, self._answered, (name, well))

    def _answered(self, now: float, told: tuple[str, bool]) -> None:
        name, well = told
        self._calendar.enter(now + self._plan.health_interval_s, self._check, name)
        self._failures[name] = 0 if well else self._failures[name] + 1
        marked = name in self.unhealthy
        if well and marked:
            self.unhealthy.discard(name)
            self._on_change(now)
        elif not marked and self._failures[name] >= self._plan.health_failures:
            self.unhealthy.add(name)
            self._on_change(now)
