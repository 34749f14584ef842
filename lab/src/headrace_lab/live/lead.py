"""`lead-time` live: each stress on each cell in turn, its alert, and when clients would have felt it."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from headrace_controller.admin.routes import MAX_EVENTS
from headrace_lab.demo.observe import TROUBLES
from headrace_lab.live.ask import Ask
from headrace_lab.live.figures import SETTLE_S, Figures, quantile
from headrace_lab.live.seen import Alert, ArmRun, FaultSeen
from headrace_lab.live.session import Session
from headrace_lab.live.timeline import Timeline
from headrace_lab.load.records import Record
from headrace_lab.scenarios import Stress
from headrace_lab.scenarios.settings import LeadPlan
from headrace_lab.scenarios.timelines import StressPoint
from headrace_lab.stack.program import StackError
from headrace_shared.clock import Clock

WINDOW_S = 10.0
"""The sliding window of the P95 that clients see."""
LEAST_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Turn:
    """A stress on a cell: `points` in seconds of the load, already compressed, the last one ends it."""

    stress: str
    cell: str
    points: tuple[StressPoint, ...]

    @property
    def at_s(self) -> float:
        return self.points[0].at_s

    @property
    def over_s(self) -> float:
        return self.points[-1].at_s


def turns(plan: LeadPlan, stresses: Sequence[Stress], cells: Sequence[str], seconds: float) -> list[Turn]:
    """Which stress strikes which cell when: each on all cells, one after the other; those that end, with
    their rest, within `seconds`."""
    faster = plan.reference_time_constant_s / plan.live.time_constant_s
    found: list[Turn] = []
    at_s = plan.live.first_s
    for name, stress in zip(plan.stresses, stresses, strict=True):
        first = stress.points[0].at_s
        for cell in cells:
            points = tuple(
                point.model_copy(update={"at_s": at_s + (point.at_s - first) / faster})
                for point in stress.points
            )
            at_s = points[-1].at_s + plan.live.rest_s
            if at_s <= seconds:
                found.append(Turn(name, cell, points))
    return found


async def strain(session: Session, ask: Ask, line: Timeline) -> list[FaultSeen]:
    """Put each stress on each cell in turn. Raises StackError."""
    plan = ask.scenario.lead
    assert plan is not None
    cells = [cell.id for cell in session.layout.fleet.cells]
    stresses = [ask.catalogue.stress(name) for name in plan.stresses]
    found = []
    for turn in turns(plan, stresses, cells, ask.seconds):
        await line.until(turn.at_s)
        seen = FaultSeen(turn.stress, (turn.cell,), line.now_s())
        for point in turn.points:
            await line.until(point.at_s)
            await session.stress(turn.cell, point)
        session.said(f"{seen.at_s:6.1f} s: {turn.stress} stress on {turn.cell}")
        found.append(replace(seen, repaired_s=line.now_s()))
    if found:
        await asyncio.sleep(plan.live.rest_s)
    return found


async def alerts(session: Session, line: Timeline) -> tuple[Alert, ...]:
    """The early warnings that began since the start of the load. Raises StackError where the controller's
    log cannot be read: no warning and none heard of are not the same."""
    try:
        data = await session.observer.events(MAX_EVENTS)
        return tuple(read_alerts(data, line.start, session.clock))
    except TROUBLES as error:
        raise StackError(f"the controller's log cannot be read: {type(error).__name__}: {error}") from error


def read_alerts(data: Any, start: float, clock: Clock) -> Iterable[Alert]:
    """Read the answer of GET /api/v1/events: times by the clock on the wall, which the API tells."""
    began_wall_s = clock.wall_ns() / 1e9 - (clock.now() - start)
    for entry in data["events"]:
        if entry["kind"] == "alert" and entry["event"] == "early warning":
            at_s = datetime.fromisoformat(entry["at"]).timestamp() - began_wall_s
            if at_s >= 0:
                yield Alert(str(entry["cell"]), at_s, str(entry["cause"]))


def breach(records: Iterable[Record], slo_ms: float, since_s: float, until_s: float) -> float | None:
    """When the P95 TTFT of the last WINDOW_S seconds first was above the SLO, by the moment at which each
    request had its first token, or had waited for it longer than the SLO."""
    window: deque[tuple[float, float]] = deque()
    for record in sorted(records, key=lambda each: each.due_s):
        ttft_ms = record.ttft_ms if record.ok and record.ttft_ms is not None else math.inf
        window.append((record.due_s, ttft_ms))
        while window[0][0] < record.due_s - WINDOW_S:
            window.popleft()
        if record.due_s < since_s or len(window) < LEAST_SAMPLES:
            continue
        ranked = sorted(each for _, each in window)
        if ranked[int(0.95 * (len(ranked) - 1))] <= slo_ms:
            continue
        seen = record.due_s + min(ttft_ms, slo_ms) / 1e3
        return seen if seen <= until_s else None
    return None


def lead_figures(runs: Sequence[ArmRun], plan: LeadPlan, tier: float) -> Figures:
    """Alert against breach: of the run with early warning, and of the plain gateway, `rr`.

    `lead_s_*` are in real seconds of the compressed run; `thermal_time_constant_s` is what they hold for.
    `unwarned` counts breaches without an alert, which have no lead to count.
    """
    plain = next((run for run in runs if run.arm == "rr"), None)
    routed = next((run for run in runs if run.arm != "rr"), None)
    usual = quantile([each for run in runs for each in run.unloaded_ms], 0.95)
    figures: Figures = {
        "thermal_time_constant_s": plan.live.time_constant_s,
        "times_faster": plan.reference_time_constant_s / plan.live.time_constant_s,
        "slo_ms": None if usual is None else tier * usual,
    }
    if routed is None or usual is None:
        return figures
    slo_ms, rest_s = tier * usual, plan.live.rest_s
    warned = {_key(each): _first(routed.alerts, each) for each in routed.faults}
    felt = {} if plain is None else {_key(each): _felt(plain, each, slo_ms) for each in plain.faults}
    for suffix, keys in _groups(list(warned)):
        both = [(felt.get(key), warned[key]) for key in keys]
        leads = [at - alert for at, alert in both if at is not None and alert is not None]
        figures |= {
            f"lead_s_mean{suffix}": sum(leads) / len(leads) if leads else None,
            f"lead_s_min{suffix}": min(leads, default=None),
            f"stresses{suffix}": float(len(keys)),
            f"alerts{suffix}": float(sum(warned[k] is not None for k in keys)),
            f"breaches_under_rr{suffix}": float(sum(felt.get(k) is not None for k in keys)),
            f"unwarned{suffix}": float(sum(at is not None and alert is None for at, alert in both)),
        }
    broken = [breach(routed.records, slo_ms, f.at_s, _over(f)) for f in routed.faults]
    return figures | {
        "slo_breaches": float(sum(each is not None for each in broken)),
        "false_alarms": float(sum(not _expected(each, routed.faults, rest_s) for each in routed.alerts)),
    }


def _key(seen: FaultSeen) -> tuple[str, str]:
    return seen.kind, seen.cells[0]


def _over(seen: FaultSeen) -> float:
    return math.inf if seen.repaired_s is None else seen.repaired_s


def _first(found: Sequence[Alert], seen: FaultSeen) -> float | None:
    """Seconds from a stress's begin to the first alert for its cell."""
    times = [each.at_s - seen.at_s for each in found if each.cell == seen.cells[0]]
    return min((each for each in times if 0 <= each <= _over(seen) - seen.at_s), default=None)


def _felt(run: ArmRun, seen: FaultSeen, slo_ms: float) -> float | None:
    """Seconds from a stress's begin to the breach of the SLO by its cell's own requests."""
    own = [each for each in run.records if each.cell == seen.cells[0] and each.due_s >= SETTLE_S]
    at_s = breach(own, slo_ms, seen.at_s, _over(seen))
    return None if at_s is None else at_s - seen.at_s


def _expected(alert: Alert, faults: Sequence[FaultSeen], rest_s: float) -> bool:
    """Whether the cell was under stress, or in its rest after one."""
    return any(
        alert.cell in each.cells and each.at_s <= alert.at_s <= _over(each) + rest_s for each in faults
    )


def _groups(keys: list[tuple[str, str]]) -> Iterable[tuple[str, list[tuple[str, str]]]]:
    yield "", keys
    for stress in dict.fromkeys(stress for stress, _ in keys):
        yield f".{stress}", [key for key in keys if key[0] == stress]
