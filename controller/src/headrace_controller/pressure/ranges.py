"""Each signal's range and weight: the catalogue's, with what the settings override."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.settings import RangeSettings
from headrace_shared.signals import CELL_SIGNALS, INDEX, SIGNALS

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

CELLS: Final = len(CELL_SIGNALS)
"""Columns 0 … 7 of the catalogue belong to a cell, 8 and 9 to its path to a gateway."""
ERROR: Final = INDEX["error_rate"]


@dataclass(frozen=True)
class Ranges:
    """(10,) arrays in catalogue order; `low` and `high` in the signals' units."""

    low: Floats
    high: Floats
    weight: Floats


def resolve_ranges(overrides: Mapping[str, RangeSettings]) -> Ranges:
    """The ranges in force; PressureSettings has seen to it that none is empty."""
    low = np.array([_or(overrides, s.name, "low", s.low) for s in SIGNALS])
    high = np.array([_or(overrides, s.name, "high", s.high) for s in SIGNALS])
    weight = np.array([_or(overrides, s.name, "weight", s.weight) for s in SIGNALS])
    return Ranges(low, high, weight)


def normalise(values: Floats, low: Floats, high: Floats) -> Floats:
    """Raw values to [0, 1], 1 = most pressure; NaN stays NaN, and so do infinities become NaN.

    `low` and `high` match the last axis of `values`.
    """
    return scale(np.where(np.isfinite(values), values, np.nan), low, high)


def scale(values: Floats, low: Floats | float, high: Floats | float) -> Floats:
    """As `normalise`, for values of which none is infinite, such as those that a beat was read into."""
    # In place from the first step on: at ten thousand cells each new array costs as much as the step.
    scaled: Floats = np.maximum(values, low)
    np.minimum(scaled, high, out=scaled)
    scaled -= low
    scaled /= np.subtract(high, low)
    return scaled


def _or(overrides: Mapping[str, RangeSettings], name: str, field: str, default: float) -> float:
    override = overrides.get(name)
    value = getattr(override, field) if override else None
    return default if value is None else float(value)
