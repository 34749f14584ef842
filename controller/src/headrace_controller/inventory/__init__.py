"""The fleet as arrays: one row a cell, written by what agents send, read by every later stage."""

from __future__ import annotations

from headrace_controller.inventory.changes import (
    CellAdded,
    CellChanged,
    CellReturned,
    CellTakenOver,
    CellWithdrawn,
    Change,
)
from headrace_controller.inventory.facts import CellFacts, GpuFacts, ModelFacts
from headrace_controller.inventory.fleet import Fleet, is_old
from headrace_controller.inventory.members import MemberChange
from headrace_controller.inventory.memory import RowMemory
from headrace_controller.inventory.pools import Pools
from headrace_controller.inventory.view import CellView, MemberView, PathView, view_cell, view_cells

__all__ = [
    "CellAdded",
    "CellChanged",
    "CellFacts",
    "CellReturned",
    "CellTakenOver",
    "CellView",
    "CellWithdrawn",
    "Change",
    "Fleet",
    "GpuFacts",
    "MemberChange",
    "MemberView",
    "ModelFacts",
    "PathView",
    "Pools",
    "RowMemory",
    "is_old",
    "view_cell",
    "view_cells",
]
