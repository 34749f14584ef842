"""What the fleet's columns hold of a life: for the stages that look at all cells at once."""

from __future__ import annotations

import math

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle.rules import BrokenInvariantError
from headrace_controller.lifecycle.states import CellLife, story


def write(fleet: Fleet, life: CellLife) -> None:
    """Write a life into its cell's row. Raises KeyError for a cell that the fleet does not know."""
    row = fleet.row(life.cell_id)
    for column, value in _mirrored(life).items():
        getattr(fleet, column)[row] = value


def check(fleet: Fleet, life: CellLife) -> None:
    """Raise BrokenInvariantError unless the cell's row says what the life says."""
    row = fleet.row(life.cell_id)
    for column, value in _mirrored(life).items():
        held = getattr(fleet, column)[row]
        if held != value and not (math.isnan(held) and math.isnan(value)):
            raise BrokenInvariantError(f"{column} is {held}, not {value}\n{story(life)}")


def _mirrored(life: CellLife) -> dict[str, float | bool]:
    """What the fleet's columns hold of a life."""
    return {
        "state": life.state,
        "state_since": life.since,
        "ready_since": math.nan if life.ready_since is None else life.ready_since,
        "hold_down_until": life.hold_down_until,
        "hold_until": life.hold_until,
        "drain_deadline": life.drain.deadline if life.drain else math.inf,
        "held": life.held,
        "telemetry_lost": life.telemetry_lost,
        "needs_restart": life.broken_at is not None,
        "asleep": life.asleep,
        "drained": life.drained,
        "doubted": life.doubted,
    }
