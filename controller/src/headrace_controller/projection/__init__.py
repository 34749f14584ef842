"""Pressure to integer weights: projections, ramp, hysteresis, and the plan that xDS publishes."""

from __future__ import annotations

from headrace_controller.projection.build import PlanBuilder, baseline_plan
from headrace_controller.projection.headroom import PROJECTIONS, headroom, ramps
from headrace_controller.projection.hysteresis import Hysteresis, Members, Verdict
from headrace_controller.projection.plan import Cells, Endpoint, Endpoints, Plan
from headrace_controller.projection.projector import Projected, Projector

__all__ = [
    "PROJECTIONS",
    "Cells",
    "Endpoint",
    "Endpoints",
    "Hysteresis",
    "Members",
    "Plan",
    "PlanBuilder",
    "Projected",
    "Projector",
    "Verdict",
    "baseline_plan",
    "headroom",
    "ramps",
]
