"""What a cell is told at its start."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from headrace_lab.engine import EngineParameters

LoadingMode = Literal["answer", "refuse"]
LOADING_MODES: tuple[LoadingMode, ...] = ("answer", "refuse")


@dataclass(frozen=True, slots=True)
class CellSettings:
    """One cell. Raises ValueError that names every figure out of range."""

    cell_id: str = "cell"
    model: str = "lab-model"
    engine_version: str = "0.32.0"
    """The vLLM version whose API and metrics the cell plays."""
    engine: EngineParameters = field(default_factory=EngineParameters)
    bytes_per_token: float = 4.0
    """Bytes of prompt text that make one token."""
    loading_s: float = 0.0
    """Seconds from the start until it serves."""
    loading_mode: LoadingMode = "answer"
    """While loading: `answer` with 503, or `refuse` connections."""
    refuse_share: float = 0.0
    """Share of completion requests, whatever their length, that are answered with 400, [0, 1]."""
    keep_alive_s: float = 5.0
    """Seconds after which a connection is closed that stood idle since its last answer."""
    seed: int = 0

    def __post_init__(self) -> None:
        problems = []
        if not self.cell_id or not self.cell_id.isascii() or not self.cell_id.isprintable():
            problems.append(f"cell id {self.cell_id!r} cannot stand in a header; use printable ASCII")
        if not self.model:
            problems.append("the model's name is empty")
        for name in ("bytes_per_token", "keep_alive_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                problems.append(f"{name} is {value}; give a number above 0")
        if not (math.isfinite(self.loading_s) and self.loading_s >= 0):
            problems.append(f"loading_s is {self.loading_s}; give 0 or more")
        if not 0 <= self.refuse_share <= 1:
            problems.append(f"refuse_share is {self.refuse_share}; give a share from 0 to 1")
        if self.loading_mode not in LOADING_MODES:
            problems.append(f"loading_mode is {self.loading_mode!r}; write one of {', '.join(LOADING_MODES)}")
        if problems:
            raise ValueError("; ".join(problems))
