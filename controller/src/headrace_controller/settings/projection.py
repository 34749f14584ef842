"""`projection`: from pressure to weights."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headrace_shared.config import Settings


class ProjectionSettings(Settings):
    """How pressure becomes weights 1 … `max_weight`, and when they are pushed.

    `speed` goes by what each cell was seen to do, and by its headroom where its pressure is more than
    `spread` above its pool's. `headroom` goes by what each cell has left now, `sharpness` is the exponent
    of both. `equalise` moves
    log-weights by `gain` a second for each unit of pressure above or below the pool's, when it is
    more than `tolerance`. `deadband` is the relative change of a weight below which nothing is
    pushed; steady state pushes at most once per `push_interval_s`; a pressure that jumps by more
    than `emergency` is pushed at once. No push changes a weight by more than the factor
    `max_change`, except where a cell joins or ramps.
    """

    name: Literal["speed", "headroom", "equalise"] = "speed"
    max_weight: int = Field(100, ge=1, le=10000)
    sharpness: float = Field(3.0, ge=0.1, le=20)
    spread: float = Field(0.25, ge=0, le=1)
    gain: float = Field(0.1, gt=0, le=10)
    tolerance: float = Field(0.03, ge=0, le=0.5)
    max_change: float = Field(2.0, ge=1.1, le=10000)
    deadband: float = Field(0.1, ge=0, le=1)
    push_interval_s: float = Field(1.0, ge=0.05, le=60)
    emergency: float = Field(0.3, gt=0, le=1)
