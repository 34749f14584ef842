"""`lead-time`: how long GPU telemetry warns before clients would see an SLO broken."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace_lab.gpu.model import GpuStress
from headrace_lab.live.ask import Ask
from headrace_lab.live.figures import Figures
from headrace_lab.load.arrivals import Arrival
from headrace_lab.scenarios.settings import HealthNoise
from headrace_lab.scenarios.timelines import Stress
from headrace_lab.sim.jobs import Job
from headrace_lab.sim.noise import Noise
from headrace_lab.sim.run import arrivals_of, setup_of
from headrace_lab.sim.sustain import unloaded_p95
from headrace_lab.sim.world import Setup, World

Said = Callable[[str], None]
WINDOW_S = 10.0
"""The sliding window of the P95 that clients see."""
LEAST_SAMPLES = 5
HEALTHY_PIECE_S = 1800.0
"""A fleet's healthy hours are simulated in pieces, each a fresh fleet with another seed."""


@dataclass(frozen=True, slots=True)
class Warned:
    """One stress on one cell. Times in seconds from the start of the load, None = never: the first
    alert for the cell, its P95 TTFT over the SLO under rr, and the same, for all requests, with
    routing on. `stray_alerts` are those for other cells, with routing on."""

    stress: str
    cell: str
    thermal_s: float
    began_s: float
    alert_s: float | None
    breach_s: float | None
    routed_breach_s: float | None
    stray_alerts: int = 0

    @property
    def lead_s(self) -> float | None:
        """From the alert to the breach; None where either did not come."""
        if self.alert_s is None or self.breach_s is None:
            return None
        return self.breach_s - self.alert_s


def breach(jobs: Sequence[Job], slo_s: float, since: float, until: float) -> float | None:
    """When the P95 TTFT of the last WINDOW_S seconds first is above the SLO, by the time at which each
    request had, or had waited for, more than the SLO; `jobs` in the order of sending."""
    window: deque[tuple[float, float]] = deque()
    for job in jobs:
        ttft = job.ttft_s if job.ttft_s is not None else math.inf
        window.append((job.sent_at, ttft))
        while window[0][0] < job.sent_at - WINDOW_S:
            window.popleft()
        if job.sent_at < since or len(window) < LEAST_SAMPLES:
            continue
        p95 = float(np.quantile([each for _, each in window], 0.95, method="lower"))
        if p95 > slo_s and (seen := job.sent_at + min(ttft, slo_s)) <= until:
            return seen
    return None


def run_lead(ask: Ask, tier: str, hours: float, said: Said) -> tuple[list[Warned], Figures]:
    """Every stress on every cell at the reference constant, then on a cell of each site at the others,
    then the healthy hours."""
    plan = ask.scenario.lead
    if plan is None:
        raise ValueError(f"scenario {ask.name} has no lead plan")
    setup = replace(setup_of(ask), heats=True)
    counting = ask.catalogue.counting
    slo_s = ask.catalogue.tiers[tier] * unloaded_p95(
        setup, ask.catalogue.arm("rr"), ask.load, counting, ask.seed
    )
    said(f"SLO of tier {tier}: P95 TTFT {slo_s * 1e3:.0f} ms; {ask.rps:g} RPS")
    arrivals = arrivals_of(ask)
    found: list[Warned] = []
    for constant in (plan.reference_time_constant_s, *plan.time_constants_s):
        reference = constant == plan.reference_time_constant_s
        if reference and found:
            continue
        cells = [each.id for each in ask.fleet.plans]
        for name in plan.stresses if reference else ("thermal",):
            for cell in cells if reference else _one_a_site(ask):
                warned = _stressed(ask, replace(setup, thermal_s=constant), arrivals, name, cell, slo_s)
                found.append(warned)
                said(f"  {name} on {cell}, time constant {constant:g} s: {_told(warned)}")
    figures = lead_figures(found, plan.reference_time_constant_s)
    alarms, simulated_h = _healthy(ask, setup, plan.noise, hours, said)
    return found, figures | {
        "slo_ms": slo_s * 1e3,
        "false_alarms": float(alarms),
        "healthy_hours": simulated_h,
    }


def _one_a_site(ask: Ask) -> list[str]:
    return list({each.site: each.id for each in ask.fleet.plans}.values())


def _stressed(ask: Ask, setup: Setup, arrivals: list[Arrival], name: str, cell: str, slo_s: float) -> Warned:
    stress = ask.catalogue.stress(name)
    began = stress.points[0].at_s
    plain = _play(ask, setup, "rr", arrivals, stress, cell)
    routed = _play(ask, setup, routed_arm(ask), arrivals, stress, cell)
    until = plain.origin + ask.seconds
    own = [job for job in plain.gateway.jobs if job.cell == cell]
    alerts = routed.controller.loop.alerts if routed.controller else ()
    at = [each.at - routed.origin for each in alerts if each.cell_id == cell and each.began]
    stray = sum(each.began and each.cell_id != cell for each in alerts)
    return Warned(
        stress=name,
        cell=cell,
        thermal_s=setup.thermal_s,
        began_s=began,
        alert_s=min((each for each in at if each >= began), default=None),
        breach_s=_since(breach(own, slo_s, plain.origin + began, until), plain.origin),
        routed_breach_s=_since(
            breach(routed.gateway.jobs, slo_s, routed.origin + began, until), routed.origin
        ),
        stray_alerts=stray,
    )


def routed_arm(ask: Ask) -> str:
    """The arm whose alerts count: the first one that is not `rr`, which is always run beside it."""
    return next((name for name in ask.arms if name != "rr"), "weights")


def _since(at: float | None, origin: float) -> float | None:
    return None if at is None else at - origin


def _play(ask: Ask, setup: Setup, arm: str, arrivals: list[Arrival], stress: Stress, cell: str) -> World:
    world = World(setup, ask.catalogue.arm(arm), ask.seed)
    for point in stress.points:
        given = GpuStress(heat_w=point.heat_w, pcie_contention=point.pcie_contention, cooling=point.cooling)
        world.calendar.enter(world.origin + point.at_s, world.cells[cell].suffer, given)
    world.run(arrivals, ask.seconds)
    return world


def _healthy(ask: Ask, setup: Setup, noise: HealthNoise, hours: float, said: Said) -> tuple[int, float]:
    """Alerts in so many hours without any stress but noise, and the hours that were simulated."""
    alarms, pieces = 0, math.ceil(hours * 3600 / HEALTHY_PIECE_S)
    for piece in range(pieces):
        calm = replace(ask, options=replace(ask.options, seed=ask.seed + piece), seconds=HEALTHY_PIECE_S)
        world = World(setup, ask.catalogue.arm(routed_arm(ask)), calm.seed)
        Noise(world, noise, calm.seed)
        world.run(arrivals_of(calm), calm.seconds)
        if world.controller is not None:
            alarms += sum(each.began for each in world.controller.loop.alerts)
        said(f"  healthy: {(piece + 1) * HEALTHY_PIECE_S / 3600:g} h, {alarms} alarms")
    return alarms, pieces * HEALTHY_PIECE_S / 3600


def lead_figures(found: Sequence[Warned], reference_s: float) -> Figures:
    """`lead_s_mean` and `lead_s_min` at the reference constant, `lead_s_mean.thermal.CONSTANT` for each,
    how many stresses there were, how many broke the SLO under rr, how many of these without any alert, which
    have no lead to count, and how many broke it with routing on."""
    own = [each for each in found if each.thermal_s == reference_s]
    figures = _summary(own, "")
    for name in dict.fromkeys(each.stress for each in own):
        figures |= _summary([each for each in own if each.stress == name], f".{name}")
    for constant in dict.fromkeys(each.thermal_s for each in found):
        some = [each for each in found if each.thermal_s == constant and each.stress == "thermal"]
        figures[f"lead_s_mean.thermal.{constant:g}s"] = _mean([each.lead_s for each in some])
    figures["slo_breaches"] = float(sum(each.routed_breach_s is not None for each in own))
    figures["stray_alerts"] = float(sum(each.stray_alerts for each in own))
    return figures


def _summary(some: Sequence[Warned], suffix: str) -> Figures:
    leads = [each.lead_s for each in some]
    known = [each for each in leads if each is not None]
    return {
        f"lead_s_mean{suffix}": _mean(leads),
        f"lead_s_min{suffix}": min(known, default=None),
        f"stresses{suffix}": float(len(some)),
        f"alerts{suffix}": float(sum(each.alert_s is not None for each in some)),
        f"breaches_under_rr{suffix}": float(sum(each.breach_s is not None for each in some)),
        f"unwarned{suffix}": float(sum(each.breach_s is not None and each.alert_s is None for each in some)),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _told(warned: Warned) -> str:
    def shown(value: float | None, base: float = 0.0) -> str:
        return "never" if value is None else f"{value - base:.1f} s"

    began = warned.began_s
    return (
        f"alert after {shown(warned.alert_s, began)}, breach under rr after "
        f"{shown(warned.breach_s, began)}, lead {shown(warned.lead_s)}, "
        f"breach with routing {shown(warned.routed_breach_s, began)}"
    )
