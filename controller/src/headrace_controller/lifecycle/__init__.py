"""The life of every cell: events in, a new state and instructions out, no clock and no I/O."""

from __future__ import annotations

from headrace_controller.lifecycle.barrier import Barrier
from headrace_controller.lifecycle.book import Answer, Book, LoggedTransition, Tick
from headrace_controller.lifecycle.instructions import (
    AskEngine,
    Forget,
    Instruction,
    NotifyDrained,
    Publish,
    TellAgentDrain,
    TellAgentUndrain,
)
from headrace_controller.lifecycle.render import render_table
from headrace_controller.lifecycle.rules import BrokenInvariantError, begin, check, step
from headrace_controller.lifecycle.silence import Silence, SilenceWatch
from headrace_controller.lifecycle.states import (
    FATAL_XIDS,
    CellLife,
    CellState,
    Drain,
    Event,
    EventKind,
    IllegalTransition,
    Transition,
    story,
)
from headrace_controller.lifecycle.table import TRANSITIONS, Branch, Rule

__all__ = [
    "FATAL_XIDS",
    "TRANSITIONS",
    "Answer",
    "AskEngine",
    "Barrier",
    "Book",
    "Branch",
    "BrokenInvariantError",
    "CellLife",
    "CellState",
    "Drain",
    "Event",
    "EventKind",
    "Forget",
    "IllegalTransition",
    "Instruction",
    "LoggedTransition",
    "NotifyDrained",
    "Publish",
    "Rule",
    "Silence",
    "SilenceWatch",
    "TellAgentDrain",
    "TellAgentUndrain",
    "Tick",
    "Transition",
    "begin",
    "check",
    "render_table",
    "step",
    "story",
]
