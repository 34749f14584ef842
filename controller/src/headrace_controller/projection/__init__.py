"""Pressure to integer weights: projections, ramp, hysteresis, and the plan that xDS publishes."""

from __future__ import annotations

from headrace_controller.projection.build import PlanBuilder, baseline_plan
from headrace_controller.projection.equalise import Equaliser, Feedback
from headrace_controller.projection.headroom import headroom, ramps
from headrace_controller.projection.hysteresis import Hysteresis, Members, Verdict
from headrace_controller.projection.intents import NO_INTENTS, Intents
from headrace_controller.projection.plan import Cells, Endpoint, Endpoints, Plan
from headrace_controller.projection.projections import PROJECTIONS, Asked, Projection
from headrace_controller.projection.projector import Projected, Projector

__all__ = [
    "NO_INTENTS",
    "PROJECTIONS",
    "Asked",
    "Cells",
    "Endpoint",
    "Endpoints",
    "Equaliser",
    "Feedback",
    "Hysteresis",
    "Intents",
    "Members",
    "Plan",
    "PlanBuilder",
    "Projected",
    "Projection",
    "Projector",
    "Verdict",
    "baseline_plan",
    "headroom",
    "ramps",
]
