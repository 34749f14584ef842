"""Why a weight is what it is: every number between a cell's figures and what a gateway holds.

An explanation accounts for the weight to the last digit: who does its arithmetic again, as
docs/pressure.md gives it, gets the weight.
"""

from __future__ import annotations

from headrace_controller.projection.explain.cell import explain
from headrace_controller.projection.explain.terms import (
    CellExplanation,
    EarlyTerm,
    ErrorTerm,
    SmoothingTerm,
    WeightTerm,
)

__all__ = ["CellExplanation", "EarlyTerm", "ErrorTerm", "SmoothingTerm", "WeightTerm", "explain"]
