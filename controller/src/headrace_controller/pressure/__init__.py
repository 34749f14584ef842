"""Ten signals to one pressure: ranges, error evidence, scorers, smoothing; no clock and no I/O."""

from __future__ import annotations

from headrace_controller.pressure.early import Alert, EarlyWarning, Warnings, choose_drains
from headrace_controller.pressure.errors import ErrorEstimator, ErrorRecord, excess
from headrace_controller.pressure.model import NEUTRAL, PressureModel, ScoreRecord
from headrace_controller.pressure.pressures import Pressures, SignalShare, Smoothing
from headrace_controller.pressure.ranges import Ranges, normalise, resolve_ranges
from headrace_controller.pressure.score import SCORERS, count_present, fill, saturate, score
from headrace_controller.pressure.speed import SpeedRecord, Speeds

__all__ = [
    "NEUTRAL",
    "SCORERS",
    "Alert",
    "EarlyWarning",
    "ErrorEstimator",
    "ErrorRecord",
    "PressureModel",
    "Pressures",
    "Ranges",
    "ScoreRecord",
    "SignalShare",
    "Smoothing",
    "SpeedRecord",
    "Speeds",
    "Warnings",
    "choose_drains",
    "count_present",
    "excess",
    "fill",
    "normalise",
    "resolve_ranges",
    "saturate",
    "score",
]
