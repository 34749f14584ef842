"""A cell's life: its states, what happens to it, and the record of both."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

NEVER: Final = float("-inf")


class CellState(IntEnum):
    """The numbers are on metrics and in recordings: they never change. 0 stays unused."""

    LOADING = 1
    READY = 2
    DRAINING = 3
    FAILED = 4
    TERMINATED = 5


class EventKind(Enum):
    """What can happen to a cell."""

    REGISTERED = "registered"
    """Its node's Hello names it: new, returned, taken over, or by a restarted agent."""
    ADOPTED = "adopted"
    """Serves, and was READY in the snapshot that a controller before this one kept."""
    ENGINE_LOADING = "engine loading"
    ENGINE_SERVING = "engine serving"
    ENGINE_DOWN = "engine down"
    ENGINE_HUNG = "engine hung"
    HUNG_WITHHELD = "hang withheld"
    """Its engine is said to hang, and so are too many others at once."""
    ENGINE_SLEEPING = "engine asleep"
    SILENCE_DEAD = "silent and dead"
    """Its agent is silent, and its engine does not answer or nobody asks it."""
    SILENCE_ALIVE = "silent and alive"
    """Its agent is silent, its engine answers."""
    SILENCE_WITHHELD = "silence withheld"
    """Its agent is one of too many that fell silent at once."""
    HEARD = "heard again"
    HARDWARE_FATAL = "hardware fatal"
    DRAIN_ASKED = "drain asked"
    DRAIN_CANCELLED = "drain cancelled"
    DRAIN_FINISHED = "drain finished"
    DRAIN_DEADLINE = "drain deadline"
    GOODBYE_PLANNED = "planned goodbye"
    WITHDRAWN = "withdrawn"
    RETENTION_OVER = "retention over"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, with its cause in words.

    `serving_s`: how long the engine has been serving (ENGINE_SERVING, HARDWARE_FATAL; 0 = it is
    not, or nobody knows). `age_s`: how long ago it happened (HARDWARE_FATAL). `grace_s`: how long a
    goodbye holds. `deadline_s`: how long a drain may take; None = the configured time.
    `requested_by` and `target`: who asked for a drain and whom to tell of its end.
    """

    kind: EventKind
    cause: str = ""
    serving_s: float = 0.0
    age_s: float = 0.0
    grace_s: float = 0.0
    deadline_s: float | None = None
    requested_by: str = ""
    target: str = ""


FATAL_XIDS: Final = frozenset({48, 79, 94, 95})
"""XIDs after which a GPU's work cannot be trusted: double-bit ECC, off the bus, contained and
uncontained ECC errors."""

BY_ENGINE: Final = "engine"
"""`requested_by` of a drain that the engine's sleep started; its waking ends it."""


@dataclass(frozen=True, slots=True)
class Drain:
    """A drain under way or done; `deadline` on the controller's clock."""

    deadline: float
    requested_by: str
    target: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of state. `before` is None at the cell's first."""

    at: float
    before: CellState | None
    to: CellState
    event: EventKind
    cause: str


@dataclass(frozen=True, slots=True)
class CellLife:
    """All that the lifecycle knows of one cell; `rules.check` states what always holds.

    Times are seconds on the controller's monotonic clock. `ready_since` is where the ramp starts,
    which lies before `since` for an engine that served before. `flaps` counts falls from READY
    with no calm between them. `hold_until` is the end of a planned goodbye's grace. `doubted`: its
    engine is said to hang, which is not believed while too many are. `broken_at` is
    when the hardware failed; only an engine that began to serve after it is believed.
    """

    cell_id: str
    state: CellState
    since: float
    cause: str
    ready_since: float | None = None
    hold_down_until: float = NEVER
    flaps: int = 0
    drain: Drain | None = None
    held: bool = False
    hold_until: float = NEVER
    telemetry_lost: bool = False
    doubted: bool = False
    broken_at: float | None = None
    history: tuple[Transition, ...] = ()

    @property
    def carries_weight(self) -> bool:
        """True when gateways may send the cell requests."""
        return self.state is CellState.READY

    @property
    def asleep(self) -> bool:
        """True when only the engine's sleep took the cell out."""
        return self.drain is not None and self.drain.requested_by == BY_ENGINE

    @property
    def drained(self) -> bool:
        """True when somebody asked to take the cell out, and has not taken that back."""
        return self.drain is not None and self.drain.requested_by != BY_ENGINE


def story(life: CellLife) -> str:
    """The cell's history for people, one line a transition, newest last."""
    head = f"{life.cell_id}: {life.state.name} since {life.since:.3f} ({life.cause})"
    lines = [
        f"  {each.at:.3f} {each.before.name if each.before else '-'} -> {each.to.name}"
        f" on {each.event.value}" + (f": {each.cause}" if each.cause else "")
        for each in life.history
    ]
    return "\n".join([head, *lines])


class IllegalTransition(Exception):  # noqa: N818 - the term of the field
    """An event that cannot happen to a cell in its state; `story` is the cell's history."""

    def __init__(self, life: CellLife, event: Event) -> None:
        self.cell_id = life.cell_id
        self.state = life.state
        self.event = event
        self.story = story(life)
        super().__init__(
            f"{event.kind.value!r} cannot happen to a cell that is {life.state.name}\n{self.story}"
        )
