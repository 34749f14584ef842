"""What the lifecycle wants done: data only, carried out by the control loop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Publish:
    """The set of endpoints changed: push at once."""

    cell_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class TellAgentDrain:
    """Send the cell's agent a Drain directive; `deadline_s` from now."""

    cell_id: str
    cause: str
    deadline_s: float


@dataclass(frozen=True, slots=True)
class TellAgentUndrain:
    """Send the cell's agent an Undrain directive."""

    cell_id: str


@dataclass(frozen=True, slots=True)
class NotifyDrained:
    """Tell whoever asked for a drain how it ended; `target` is theirs to read."""

    cell_id: str
    requested_by: str
    target: str
    outcome: str


@dataclass(frozen=True, slots=True)
class AskEngine:
    """Ask the engine itself whether it lives, and report back with `Book.answered`."""

    cell_id: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing is known of the cell any more: take it out of the inventory."""

    cell_id: str


Instruction = Publish | TellAgentDrain | TellAgentUndrain | NotifyDrained | AskEngine | Forget
