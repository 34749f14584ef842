"""When weights are pushed, and which of them move: stability first, emergencies at once."""

from __future__ import annotations

from typing import Final, NamedTuple

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
# A weight that turns back must have more reason than one that goes on: a loop whose answer comes late,
# as that of queues does, would else swing around its deadband for ever.
_TURN: Final = 2.0
# What is firm and wanted without a change for so long is told, however little it is: cells that are equal
# again have equal weights again.
_SETTLED_S: Final = 30.0
_ROUNDING: Final = 1e-9


# These are tuples because a dataclass takes microseconds to make, and there are some in each tick.
class Members(NamedTuple):
    """m cells in their pools, now. `keys` (m,) are distinct and stay with a membership for its
    life. `weights` (G, m) are the projection's; `raw` (G, m) this tick's pressures; `held` (m,) or
    (G, m) keep what was pushed last; `ramping` (m,) have not reached their full weight yet; `exact`
    (m,) get their weight as it is; `firm` (G, m) go by what is held where it comes from, and not by a
    reading of the moment. None = nobody."""

    keys: Ints
    weights: Ints
    raw: Floats
    held: Flags
    ramping: Flags | None = None
    exact: Flags | None = None
    firm: Flags | None = None


class _Pushed(NamedTuple):
    """What was told last, and what was true when a member last got what it wanted; `found` (m,) are
    those who were told anything, None = all. Weights and pressures (G, m) of those who were not are 0.
    `trend` (G, m): which way each weight went last, 1 = up, -1 = down, 0 = it has stood; None = all.
    """

    keys: Ints
    weights: Ints
    raw: Floats
    ramping: Flags | None
    found: Flags | None = None
    trend: Ints | None = None


class _Wanted(NamedTuple):
    """What was wanted last, and since when each weight (G, m) is that, while any is not what was told."""

    keys: Ints
    weights: Ints
    since: Floats


class Verdict(NamedTuple):
    """`reason` says why something is pushed, "" = nothing is. `weights` (G, m) are what gateways
    hold after it, in the order of the members; `before` (G, m) what they held, 0 = nothing.
    `moved` and `limited` (G, m): who was past its deadband, and whose weight would have gone further
    in this push; `free` (m,): whose weight no push limits; None = nobody."""

    reason: str
    weights: Ints
    before: Ints
    moved: Flags | None = None
    limited: Flags | None = None
    free: Flags | None = None

    @property
    def push(self) -> bool:
        """True when something is to be pushed."""
        return bool(self.reason)


class Hysteresis:
    """Remembers what was pushed last and judges each tick against it.

    A member within the deadband keeps its weight, also when others move, unless its ramp has just
    ended, its new weight is the least one, or is firm and the same for long; to turn back takes more than to
    go on. Weights are
    pushed at most once per `push_interval_s`; at once when members come or go, when `force` says so,
    or when a raw pressure has risen by more than `emergency` since the last push and that moves a
    weight. A push changes no weight by more than the factor `max_change`, or by 1 where that is more;
    who joins or ramps, and a weight that an operator has set, is not limited. An emergency goes on
    with the next tick until it is where it wants to be. A fleet whose pressures stay the same pushes
    nothing.
    """

    def __init__(self, settings: ProjectionSettings) -> None:
        self._settings = settings
        self._low, self._high = reaches(settings.max_weight, settings.max_change)
        self._pushed: _Pushed | None = None
        self._pushed_at = NEVER
        self._wanted: _Wanted | None = None

    def seed(self, members: Members, now: float) -> None:
        """Take the members' weights as pushed, without a push of this controller's own."""
        self._pushed = _Pushed(members.keys, members.weights, members.raw, members.ramping)
        self._pushed_at = now

    def judge(self, members: Members, now: float, force: str = "", due: str = "") -> Verdict:
        """Decide for this tick, and remember it as pushed if it is. `force` is a reason to push
        whatever the weights are, and `due` one to push as soon as `push_interval_s` has passed."""
        was = self._align(members)
        free = _any(members.ramping, was.ramping, members.exact)
        moved = self._moved(members, was, now)
        weights, limited = was.weights, None
        if moved is not None:
            bounded = self._bound(members.weights, was.weights, free)
            limited = bounded != members.weights
            weights = np.where(moved, bounded, weights)
        reason = force or self._reason(members, moved, was, now)
        if due and not reason and now - self._pushed_at >= self._settings.push_interval_s:
            reason = due
        if not reason:
            return Verdict("", was.weights, was.weights, moved, limited, free)
        raw, trend = members.raw, was.trend
        if moved is not None and limited is not None:
            # Who has not got what it wants yet is still compared with what was before.
            raw = np.where(limited, was.raw, raw)
            trend = self._turn(weights, was)
        self._pushed = _Pushed(members.keys, weights, raw, members.ramping, None, trend)
        self._pushed_at = now
        return Verdict(reason, weights, was.weights, moved, limited, free)

    def pushed(self, keys: Ints) -> Ints:
        """(G, m): what the members of these keys hold; 0 = they were told nothing yet."""
        pushed = self._pushed
        if pushed is None or not len(pushed.keys):
            return np.zeros((1 if pushed is None else len(pushed.weights), len(keys)), dtype=np.int64)
        if pushed.keys is keys:
            return pushed.weights
        at, found = find(pushed.keys, keys)
        held: Ints = np.where(found, pushed.weights[:, at], 0)
        return held

    def reach(self, weight: int) -> tuple[int, int]:
        """The least and the greatest that one push may make of a weight, 0 = of none."""
        return int(self._low[weight]), int(self._high[weight])

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
                members.keys, np.zeros_like(members.weights), np.zeros_like(members.raw), None, nobody
            )
        if pushed.keys is members.keys:
            return pushed
        at, found = find(pushed.keys, members.keys)
        return _Pushed(
            keys=members.keys,
            weights=np.where(found, pushed.weights[:, at], 0),
            raw=np.where(found, pushed.raw[:, at], 0.0),
            ramping=None if pushed.ramping is None else pushed.ramping[at] & found,
            found=found,
            trend=None if pushed.trend is None else np.where(found, pushed.trend[:, at], 0),
        )

    def _moved(self, members: Members, was: _Pushed, now: float) -> Flags | None:
        """(G, m): whose weight changes enough to be told; None where nobody's does."""
        new, old = members.weights, was.weights
        different = new != old
        if was.found is None and not np.count_nonzero(different):
            self._wanted = None
            return None
        moved: Flags = different & ~members.held
        if self._settings.deadband:
            enough = self._is_enough(members, was)
            moved &= enough if members.firm is None else enough | self._has_stood(members, members.firm, now)
        if members.exact is not None:
            moved |= members.exact & different
        return moved if was.found is None else moved | ~was.found

    def _has_stood(self, members: Members, firm: Flags, now: float) -> Flags:
        """(G, m): whose weight is firm, and wanted for so long that it is told whatever its deadband."""
        wanted = self._wanted
        if wanted is None or wanted.keys is not members.keys:
            since = np.full(members.weights.shape, now)
        else:
            since = np.where(members.weights == wanted.weights, wanted.since, now)
        self._wanted = _Wanted(members.keys, members.weights, since)
        stood: Flags = firm & (now - since >= _SETTLED_S)
        return stood

    def _is_enough(self, members: Members, was: _Pushed) -> Flags:
        """(G, m): whose new weight is out of its deadband, or is told whatever that says."""
        new, old = members.weights, was.weights
        size = np.maximum(np.maximum(new, old), _SMALL_SHARE * self._settings.max_weight)
        change = new - old
        least = self._settings.deadband * size
        if was.trend is not None:
            least = np.where(change * was.trend < 0, _TURN * least, least)
        enough: Flags = (np.abs(change) > least) | (new == 1)
        if was.ramping is not None:
            enough |= was.ramping if members.ramping is None else was.ramping & ~members.ramping
        return enough

    def _bound(self, new: Ints, old: Ints, free: Flags | None) -> Ints:
        """(G, m): the new weights, within reach of the old ones; an old weight of 0 reaches any."""
        bounded: Ints = np.minimum(np.maximum(new, self._low[old]), self._high[old])
        return bounded if free is None else np.where(free, new, bounded)

    def _reason(self, members: Members, moved: Flags | None, was: _Pushed, now: float) -> str:
        if self._pushed is None:
            return "first"
        if was.found is not None and not (was.found.all() and len(self._pushed.keys) == len(members.keys)):
            return "membership"
        if moved is None or not np.count_nonzero(moved):
            return ""
        risen = (members.raw - was.raw > self._settings.emergency) & ~members.held
        if np.count_nonzero(risen):
            return "emergency"
        return "weights" if now - self._pushed_at >= self._settings.push_interval_s else ""

    def _turn(self, weights: Ints, was: _Pushed) -> Ints | None:
        """Which way each weight has gone last, once `weights` are pushed."""
        if not self._settings.deadband:
            return None
        way = np.sign(weights - was.weights)
        if was.found is not None:
            way = np.where(was.found, way, 0)
        return way if was.trend is None else np.where(way == 0, was.trend, way)


def _any(*flags: Flags | None) -> Flags | None:
    """(m,): who has any of the flags; None = nobody."""
    found: Flags | None = None
    for each in flags:
        if each is not None:
            found = each if found is None else found | each
    return found


def reaches(most: int, factor: float) -> tuple[Ints, Ints]:
    """By old weight (0 … `most`), the least and the greatest that one push may make of it."""
    old = np.arange(most + 1)
    low = np.maximum(np.minimum(np.ceil(old / factor - _ROUNDING), old - 1), 1)
    high = np.minimum(np.maximum(np.floor(old * factor + _ROUNDING), old + 1), most)
    low[0], high[0] = 1, most
    return low.astype(np.int64), high.astype(np.int64)


def find(known: Ints, keys: Ints) -> tuple[Ints, Flags]:
    """Where each of `keys` stands among the `known` ones, of which there is any, and whether it does."""
    order = np.argsort(known)
    at = np.searchsorted(known, keys, sorter=order)
    at = order[np.minimum(at, len(order) - 1)]
    return at, known[at] == keys
