"""Views of cells as the operator's side sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace_controller.control.view import CellView

_CELL = CellView(
    id="c1",
    node="n1",
    site="a",
    address="127.0.0.1:8000",
    engine="vllm 1",
    models=("m",),
    state="READY",
    state_number=2,
    state_since_s=1.0,
    cause="serves",
    pressure=0.1,
    pressures={"gw": 0.1},
    weights={"gw": 100},
    signals={"kv_fill": 0.5, "rtt_ms": None},
    contributions={},
    fallback="",
    telemetry_lost=False,
    heartbeat_age_s=0.1,
    in_flight=1,
    error_rate=None,
    requests={},
)


def cell_view(cell_id: str, **changes: Any) -> CellView:
    """A READY cell; `changes` replace its fields."""
    return replace(_CELL, id=cell_id, **changes)
