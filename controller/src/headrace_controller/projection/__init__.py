"""Pressure to integer weights: projections, ramp, hysteresis, and the plan that xDS publishes."""

from __future__ import annotations

from headrace_controller.projection.asked import Asked
from headrace_controller.projection.build import PlanBuilder, baseline_plan
from headrace_controller.projection.equalise import Equaliser, Feedback
from headrace_controller.projection.explain import CellExplanation, EarlyTerm, ErrorTerm, WeightTerm, explain
from headrace_controller.projection.headroom import headroom, ramps
from headrace_controller.projection.hysteresis import Hysteresis, Members, Verdict
from headrace_controller.projection.intents import NO_INTENTS, Intents
from headrace_controller.projection.plan import Cells, Endpoint, Endpoints, Plan
from headrace_controller.projection.projections import PROJECTIONS, Projection
from headrace_controller.projection.projector import Projected, Projector

__all__ = [
    "NO_INTENTS",
    "PROJECTIONS",
    "Asked",
    "CellExplanation",
    "Cells",
    "EarlyTerm",
    "Endpoint",
    "Endpoints",
    "Equaliser",
    "ErrorTerm",
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
    "WeightTerm",
    "baseline_plan",
    "explain",
    "headroom",
    "ramps",
]
