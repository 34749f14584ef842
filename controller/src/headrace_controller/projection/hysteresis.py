"""When weights are pushed, and which of them move: stability first, emergencies at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.settings import ProjectionSettings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

NEVER: Final = float("-inf")
# Below a tenth of the greatest weight, the deadband is that of a tenth: a step from 1 to 2 moves
# no traffic worth a push.
_SMALL_SHARE: Final = 0.1


@dataclass(frozen=True)
class Members:
    """m cells in their pools, now. `keys` (m,) are distinct and stay with a membership for its
    life. `weights` (G, m) are the projection's; `raw` (G, m) this tick's pressures; `held` (m,)
    keep what was pushed last; `ramping` (m,) have not reached their full weight yet."""

    keys: Ints
    weights: Ints
    raw: Floats
    held: Flags
    ramping: Flags


@dataclass(frozen=True)
class Verdict:
    """`reason` says why something is pushed, "" = nothing is. `weights` (G, m) are what gateways
    hold once that is done, in the order of the members."""

    reason: str
    weights: Ints

    @property
    def push(self) -> bool:
        """True when something is to be pushed."""
        return bool(self.reason)


class Hysteresis:
    """Remembers what was pushed last and judges each tick against it.

    A member within the deadband keeps its weight, also when others move, unless its ramp has just
    ended or its new weight is the least one. Weights are pushed at most once per
    `push_interval_s`; at once when members come or go, when `force` says so, or when a raw
    pressure has risen by more than `emergency` since the last push and that moves a weight.
    A fleet whose pressures stay the same pushes nothing.
    """

    def __init__(self, settings: ProjectionSettings) -> None:
        self._settings = settings
        self._pushed: Members | None = None
        self._pushed_at = NEVER

    def seed(self, members: Members, now: float) -> None:
        """Take the members' weights as pushed, without a push of this controller's own."""
        self._remember(members, members.weights, now)

    def judge(self, members: Members, now: float, force: str = "") -> Verdict:
        """Decide for this tick, and remember it as pushed if it is. `force` is a reason to push
        whatever the weights are."""
        old, found, was = self._align(members)
        moved = self._moved(members, old, found, was)
        weights = np.where(moved, members.weights, old)
        reason = force or self._reason(members, found, moved, was, now)
        if reason:
            self._remember(members, weights, now)
        return Verdict(reason, weights)

    def _align(self, members: Members) -> tuple[Ints, Flags, Members]:
        """The weights pushed last for today's members (0 where none), which have one, and what
        else was true of them then."""
        pushed, m = self._pushed, len(members.keys)
        if pushed is None or not len(pushed.keys):
            blank = np.zeros_like(members.weights)
            return blank, np.zeros(m, dtype=np.bool_), members
        at = np.clip(np.searchsorted(pushed.keys, members.keys), 0, len(pushed.keys) - 1)
        found = pushed.keys[at] == members.keys
        was = Members(
            keys=pushed.keys[at],
            weights=np.where(found, pushed.weights[:, at], 0),
            raw=pushed.raw[:, at],
            held=pushed.held[at],
            ramping=pushed.ramping[at],
        )
        return was.weights, found, was

    def _moved(self, members: Members, old: Ints, found: Flags, was: Members) -> Flags:
        """(G, m): whose weight changes enough to be told."""
        new, most = members.weights, self._settings.max_weight
        size = np.maximum(np.maximum(new, old), _SMALL_SHARE * most)
        far = np.abs(new - old) > self._settings.deadband * size
        ended = was.ramping & ~members.ramping
        floor = (new == 1) & (old > 1)
        moved: Flags = (new != old) & (far | ended | floor) & ~members.held
        return moved | ~found

    def _reason(self, members: Members, found: Flags, moved: Flags, was: Members, now: float) -> str:
        if self._pushed is None:
            return "first"
        if not found.all() or len(self._pushed.keys) != len(members.keys):
            return "membership"
        if not moved.any():
            return ""
        risen = (members.raw - was.raw > self._settings.emergency) & ~members.held
        if risen.any():
            return "emergency"
        return "weights" if now - self._pushed_at >= self._settings.push_interval_s else ""

    def _remember(self, members: Members, weights: Ints, now: float) -> None:
        order = np.argsort(members.keys)
        self._pushed = Members(
            keys=members.keys[order],
            weights=weights[:, order],
            raw=members.raw[:, order],
            held=members.held[order],
            ramping=members.ramping[order],
        )
        self._pushed_at = now
