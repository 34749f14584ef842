"""When weights are pushed, and which of them move: stability first, emergencies at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    life. `weights` (G, m) are the projection's; `raw` (G, m) this tick's pressures; `held` (m,) or
    (G, m) keep what was pushed last; `ramping` (m,) have not reached their full weight yet; `exact`
    (m,) get their weight as it is, None = nobody."""

    keys: Ints
    weights: Ints
    raw: Floats
    held: Flags
    ramping: Flags
    exact: Flags | None = None


@dataclass(frozen=True)
class _Pushed:
    """What was told last, and what was true then; `found` (m,) are those who were told anything, None =
    all. Weights and pressures (G, m) of those who were not are 0."""

    keys: Ints
    weights: Ints
    raw: Floats
    ramping: Flags
    found: Flags | None = None


@dataclass(frozen=True)
class Verdict:
    """`reason` says why something is pushed, "" = nothing is. `weights` (G, m) are what gateways
    hold once that is done, in the order of the members; `before` (G, m) what they held, 0 = nothing.
    `moved` and `limited` (G, m): who was past its deadband, and whose weight would have gone further
    in this push; None = nobody."""

    reason: str
    weights: Ints
    before: Ints
    moved: Flags | None = None
    limited: Flags | None = None

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
    A push changes no weight by more than the factor `max_change`, or by 1 where that is more; who
    joins or ramps, and a weight that an operator has set, is not limited. An emergency goes on with
    the next tick until it is where it wants to be. A fleet whose pressures stay the same pushes
    nothing.
    """

    def __init__(self, settings: ProjectionSettings) -> None:
        self._settings = settings
        self._pushed: _Pushed | None = None
        self._pushed_at = NEVER

    def seed(self, members: Members, now: float) -> None:
        """Take the members' weights as pushed, without a push of this controller's own."""
        self._remember(members, members.weights, now)

    def judge(self, members: Members, now: float, force: str = "") -> Verdict:
        """Decide for this tick, and remember it as pushed if it is. `force` is a reason to push
        whatever the weights are."""
        was = self._align(members)
        moved = self._moved(members, was)
        if moved is None:
            weights, limited, risen = was.weights, None, None
        else:
            bounded, limited = self._limit(members, was)
            weights = np.where(moved, bounded, was.weights)
            risen = self._risen(members, was)
        reason = force or self._reason(members, moved, risen, was, now)
        if reason:
            self._remember(members, weights, now)
            if limited is not None and risen is not None:
                self._carry_on(members, was, limited & risen)
        return Verdict(reason, weights, was.weights, moved, limited)

    def pushed(self, keys: Ints) -> Ints:
        """(G, m): what the members of these keys hold; 0 = they were told nothing yet."""
        pushed = self._pushed
        if pushed is None or not len(pushed.keys):
            return np.zeros((1 if pushed is None else len(pushed.weights), len(keys)), dtype=np.int64)
        if pushed.keys is keys:
            return pushed.weights
        at, found = _find(pushed.keys, keys)
        held: Ints = np.where(found, pushed.weights[:, at], 0)
        return held

    def fork(self) -> Hysteresis:
        """Another one that starts from what this one has pushed, and goes its own way from there."""
        twin = Hysteresis(self._settings)
        twin._pushed, twin._pushed_at = self._pushed, self._pushed_at
        return twin

    def _align(self, members: Members) -> _Pushed:
        """What was pushed last, in the order of today's members."""
        pushed = self._pushed
        if pushed is None or not len(pushed.keys):
            nobody = np.zeros(len(members.keys), dtype=np.bool_)
            return _Pushed(
                members.keys, np.zeros_like(members.weights), np.zeros_like(members.raw), nobody, nobody
            )
        if pushed.keys is members.keys:
            return pushed
        at, found = _find(pushed.keys, members.keys)
        return _Pushed(
            keys=members.keys,
            weights=np.where(found, pushed.weights[:, at], 0),
            raw=np.where(found, pushed.raw[:, at], 0.0),
            ramping=pushed.ramping[at] & found,
            found=found,
        )

    def _moved(self, members: Members, was: _Pushed) -> Flags | None:
        """(G, m): whose weight changes enough to be told; None where nobody's does."""
        new, old, most = members.weights, was.weights, self._settings.max_weight
        if was.found is None and np.array_equal(new, old):
            return None
        size = np.maximum(np.maximum(new, old), _SMALL_SHARE * most)
        enough = np.abs(new - old) > self._settings.deadband * size
        enough |= was.ramping & ~members.ramping
        enough |= (new == 1) & (old > 1)
        moved: Flags = (new != old) & enough & ~members.held
        if members.exact is not None:
            moved |= members.exact & (new != old)
        return moved if was.found is None else moved | ~was.found

    def _limit(self, members: Members, was: _Pushed) -> tuple[Ints, Flags]:
        """The new weights within reach of this push, and whose is out of it."""
        new, old, factor = members.weights, was.weights, self._settings.max_change
        low = np.minimum(np.ceil(old / factor), old - 1)
        high = np.maximum(np.floor(old * factor), old + 1)
        bounded: Ints = np.minimum(np.maximum(new, low), high).astype(np.int64)
        free = members.ramping | was.ramping
        if was.found is not None:
            free = free | ~was.found
        if members.exact is not None:
            free = free | members.exact
        if free.any():
            bounded = np.where(free, new, bounded)
        return bounded, bounded != new

    def _risen(self, members: Members, was: _Pushed) -> Flags:
        risen: Flags = (members.raw - was.raw > self._settings.emergency) & ~members.held
        return risen

    def _reason(
        self, members: Members, moved: Flags | None, risen: Flags | None, was: _Pushed, now: float
    ) -> str:
        if self._pushed is None:
            return "first"
        if was.found is not None and not (was.found.all() and len(self._pushed.keys) == len(members.keys)):
            return "membership"
        if moved is None or not moved.any():
            return ""
        if risen is not None and risen.any():
            return "emergency"
        return "weights" if now - self._pushed_at >= self._settings.push_interval_s else ""

    def _remember(self, members: Members, weights: Ints, now: float) -> None:
        self._pushed = _Pushed(members.keys, weights, members.raw, members.ramping)
        self._pushed_at = now

    def _carry_on(self, members: Members, was: _Pushed, unfinished: Flags) -> None:
        """Those whose emergency was cut short are compared with what was true before it."""
        if unfinished.any() and self._pushed is not None:
            raw = np.where(unfinished, was.raw, members.raw)
            self._pushed = replace(self._pushed, raw=raw)


def _find(known: Ints, keys: Ints) -> tuple[Ints, Flags]:
    """Where each of `keys` stands among the `known` ones, of which there is any, and whether it does."""
    order = np.argsort(known)
    at = np.searchsorted(known, keys, sorter=order)
    at = order[np.minimum(at, len(order) - 1)]
    return at, known[at] == keys
