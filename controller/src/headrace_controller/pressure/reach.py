"""How far a cell is from a gateway, next to what its pool's clients wait for anyway.

A path costs each request its round trip, its unevenness and what is lost on it. Where a pool answers in
seconds, that is nothing; where it answers in tens of milliseconds, a far cell is the slow one whatever it
can do. A part is taken from it then, until nearer cells wait.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Fleet, Pools, RowMemory
from headrace_controller.inventory.columns import NEVER

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_FLOOR: Final = -3.9
LEAST: Final = math.exp(_FLOOR)
"""The reach of a path that passes nothing, and of the farthest: 0.02. It leaves enough to learn by."""

INTERVAL_S: Final = 0.5
# What a path costs beyond its round trip: of the jitter, so that it is the round trip of the slowest few;
# of the loss, ms, for the first packets of a connection are sent again after a second. One echo lost of
# the twenty that an agent remembers is no loss yet.
_JITTER: Final = 1.5
_LOSS_MS: Final = 1000.0
_LOSS_S: Final = 60.0
_LOSSLESS_S: Final = 120.0
# A path that grows is believed soon, one that shrinks or is only quieter for a moment, late.
_WORSE_S: Final = 3.0
_BETTER_S: Final = 30.0
# The excess that halves a reach, and the wait of nearer cells that ends it, as shares of the TTFT at which
# the pool counts as full.
_HALF: Final = 0.1
_WAIT: Final = 0.1
_STEEP: Final = 4.0
# Of cells that are nearer the waiting is seen at once, and forgotten late: who is opened again too often
# only learns the same again.
_FORGET_S: Final = 300.0
# So much more than a cell's TTFT without load, as a factor, is no waiting.
_LUCK: Final = 1.25
# How far prompts may have grown since a cell's TTFT was the least, as a factor.
_GROWN: Final = 2.0
# By how much a reach may fall in a second, as a logarithm. A queue shows late that there is too much: nearer
# cells of which not all is known, or whose tensor pipes work for this share of the time, get more so slowly
# that it is seen before it hurts, and those that do nothing as fast as pushes go.
_SLOW: Final = 0.03
_FAST: Final = 1.0 / 3.0
_BUSY: Final = 0.2
# In logarithms: what is in force stands still within the first while the reach is fast on its way, and
# within the second in any case. It is a multiple of the grain.
_STEP: Final = 0.6
_STILL: Final = 0.15
_GRAIN: Final = 0.1
# A little less than all is all: it would only make equal cells unequal.
_WHOLE: Final = math.log(0.7)
# The greatest share of the TTFT at which the pool counts as full that a path may cost more and lose nothing.
_NEAR: Final = _HALF * math.expm1(-_WHOLE) ** (1.0 / _STEEP)


class Reach(NamedTuple):
    """(G, n): the `factor` in force, above 0 and at most 1; and by how much a path costs more than the
    least of its pool, `excess_ms`, NaN = not known."""

    factor: Floats
    excess_ms: Floats


class Seen(NamedTuple):
    """What a look sees. `path` (G, n, 2) are round trips and jitters, ms, `loss` (G, n) shares, and `dead`
    (G, n) paths that pass nothing; `ttft` (n,) is the P95, and `least` (n,) the least ever, s; `compute`
    (n,) the tensor activity; NaN = absent in all of them. `full_s` (n,) is when a cell's pool counts as
    full. Of `frozen` (n,) cells nothing moves, and the engine's figures of `unread` ones are old."""

    path: Floats
    loss: Floats
    dead: Flags
    ttft: Floats
    least: Floats
    compute: Floats
    full_s: Floats
    frozen: Flags
    unread: Flags


class Reacher:
    """Keeps what paths cost, who waits, and the reaches in force; `gateways` is their number.

    A path's excess is what it costs more than the least of its pool's READY cells, less the more, the longer
    requests wait at nearer ones. It is held against the TTFT at which the pool counts as full, so that
    where clients wait for seconds anyway all are wholly within reach. A reach rises at once, and falls
    no faster than nearer cells can be seen to take what it gives away.
    """

    def __init__(self, gateways: int) -> None:
        self._paths = RowMemory({"cost": np.nan, "loss": 0.0, "run": np.nan, "held": np.nan}, width=gateways)
        self._waits = RowMemory({"wait": np.nan})
        self._looked_at = NEVER
        self._of: tuple[Pools, int] | None = None
        self._found: Reach | None = None

    def due(self, fleet: Fleet, now: float) -> bool:
        """Whether it is time for a look, or rows or pools have changed since the last one."""
        of = self._of
        same = of is not None and of[0] is fleet.pools() and of[1] == fleet.rows_version
        return not same or now - self._looked_at >= INTERVAL_S

    @property
    def found(self) -> Reach | None:
        """What the last look found; None where all are wholly within reach."""
        return self._found

    def look(self, fleet: Fleet, seen: Seen, ready: Flags, now: float) -> Reach | None:
        """Take in what is seen; a pool's nearest cell is one of its `ready` (n,) ones."""
        elapsed = max(0.0, now - self._looked_at) if self._looked_at != NEVER else 0.0
        self._looked_at = max(now, self._looked_at)
        pools = fleet.pools()
        self._of, self._found = (pools, fleet.rows_version), None
        self._paths.follow(fleet)
        self._waits.follow(fleet)
        self._take_paths(seen, elapsed)
        cost, held = self._paths["cost"].T, self._paths["held"].T
        if not (held < 0).any() and not seen.dead.any() and _all_near(cost, seen.full_s):
            self._paths["run"].T[~np.isnan(cost)] = held[~np.isnan(cost)] = 0.0
            self._waits["wait"][:] = np.nan
            return None
        self._take_waits(seen, pools, ready, elapsed)
        wait, free = self._waits["wait"], _free(seen.compute)
        judged = [
            _judge(own, dead, wait, free, seen.full_s, pools, ready)
            for own, dead in zip(cost, seen.dead, strict=True)
        ]
        excess, aims, rates = (np.stack(each) for each in zip(*judged, strict=True))
        self._move(aims, seen.frozen, rates, elapsed)
        if (held < 0).any():
            self._found = Reach(np.exp(held), excess)
        return self._found

    def record(self, fleet: Fleet, row: int) -> tuple[float, ...]:
        """A row's reaches in force as logarithms, by gateway; NaN = none yet."""
        self._paths.follow(fleet)
        return tuple(self._paths["held"][row].tolist())

    def restore(self, fleet: Fleet, row: int, held: tuple[float, ...]) -> None:
        """Go on from a record of the row's cell; one of other gateways says nothing."""
        self._paths.follow(fleet)
        if len(held) == self._paths["held"].shape[1]:
            self._paths["held"][row] = self._paths["run"][row] = held
        self._of = None

    def _take_paths(self, seen: Seen, elapsed: float) -> None:
        """Costs over time. One that is told no more is not known, unless its agent tells nothing at all."""
        cost, loss = self._paths["cost"].T, self._paths["loss"].T
        lost = np.where(np.isnan(seen.loss), loss, seen.loss)
        loss += (1.0 - np.exp(-elapsed / np.where(lost > loss, _LOSS_S, _LOSSLESS_S))) * (lost - loss)
        now = seen.path[:, :, 0] + _JITTER * np.nan_to_num(seen.path[:, :, 1]) + _LOSS_MS * loss
        moved = (1.0 - np.exp(-elapsed / np.where(now > cost, _WORSE_S, _BETTER_S))) * (now - cost)
        unknown = np.isnan(now)
        cost += np.where(unknown, 0.0, moved)
        cost[:] = np.where(np.isnan(cost) | (unknown & ~seen.frozen), now, cost)

    def _take_waits(self, seen: Seen, pools: Pools, ready: Flags, elapsed: float) -> None:
        """(n,) in [0, 1]: how long requests wait at each cell beyond what they need anyway, of which that
        at the pool's quietest cell tells where prompts have grown."""
        wait, idle = self._waits["wait"], seen.least
        quietest = _least_of(pools, seen.ttft[pools.row], ready[pools.row])
        quiet = np.full(len(idle), np.inf)
        np.minimum.at(quiet, pools.row, quietest[pools.pool])
        idle = np.maximum(idle, np.minimum(quiet, _GROWN * idle))
        # Where no request has come for a while, none waits.
        ttft = np.where(np.isnan(seen.ttft), idle, seen.ttft)
        now = np.clip((ttft - _LUCK * idle) / (_WAIT * seen.full_s), 0.0, 1.0)
        now = np.where(np.isnan(now), np.nan, np.fmax(now, wait * math.exp(-elapsed / _FORGET_S)))
        wait[:] = np.where(seen.unread, wait, now)

    def _move(self, aims: Floats, frozen: Flags, rates: Floats, elapsed: float) -> None:
        """Let reaches run to their aims (G, n), down as fast as `rates` say, and what is in force follow in
        steps."""
        run, held = self._paths["run"].T, self._paths["held"].T
        aims = np.where(frozen & ~np.isnan(run), run, aims)
        run[:] = np.where(np.isnan(run), aims, np.maximum(aims, run - rates * elapsed))
        falls_fast = (run > aims) & (rates >= _FAST / 2)
        # NaN is what was never in force.
        stands = np.abs(run - held) <= np.where(falls_fast, _STEP, _STILL)
        held[:] = np.where(stands, held, np.rint(run / _GRAIN) * _GRAIN)
        held[run >= _WHOLE] = 0.0


def _judge(
    cost: Floats, dead: Flags, wait: Floats, free: Floats, full_s: Floats, pools: Pools, ready: Flags
) -> tuple[Floats, Floats, Floats]:
    """(n,) each, as seen from one gateway: the excess in ms, NaN = not known, the aim as a logarithm, and how
    fast the reach may fall; a row in several pools has the best that it has in any."""
    row, pool = pools.row, pools.pool
    own, counted = cost[row], ready[row] & ~np.isnan(cost[row])
    excess = np.fmax(own - _least_of(pools, own, counted)[pool], 0.0)
    excess[np.isnan(own) | ~np.isfinite(excess)] = np.nan
    waiting, idling = _nearer(excess, np.stack((wait, free))[:, row], pool, counted)
    x = excess * (1.0 - waiting) ** 2 / (1e3 * _HALF * full_s[row])
    aim = np.maximum(-np.log1p(x**_STEEP), _FLOOR)
    aim[dead[row]] = _FLOOR
    told, best = ~np.isnan(aim), np.full(len(cost), -np.inf)
    np.maximum.at(best, row[told], aim[told])
    nearest, rates = np.full(len(cost), np.nan), np.full(len(cost), _SLOW)
    np.fmin.at(nearest, row, excess)
    np.maximum.at(rates, row, _SLOW + (_FAST - _SLOW) * idling)
    # Who is sent nothing over a dead path loses nothing by it.
    rates[dead] = _FAST
    aims = np.where(np.isinf(best), np.nan, best)
    middles = np.nan_to_num(pools.row_medians(aims, ready))
    return nearest, np.where(np.isnan(aims), middles, aims), rates


def _least_of(pools: Pools, values: Floats, members: Flags) -> Floats:
    """(m,) → (p,): the least that the marked members of each pool have; inf where none has any."""
    least = np.full(len(pools.models), np.inf)
    counted = members & ~np.isnan(values)
    np.minimum.at(least, pools.pool[counted], values[counted])
    return least


def _all_near(cost: Floats, full_s: Floats) -> bool:
    """Whether no excess can be enough to take anything: nearly always, and quickly told."""
    if not cost.size:
        return True
    widths = np.nan_to_num(np.fmax.reduce(cost, axis=1) - np.fmin.reduce(cost, axis=1))
    return bool(widths.max() <= _NEAR * 1e3 * full_s.min())


def _free(compute: Floats) -> Floats:
    """(n,) in [0, 1]: how far cells are from being busy; 0 where nothing tells."""
    free: Floats = np.where(np.isnan(compute), 0.0, np.maximum(1.0 - compute / _BUSY, 0.0))
    return free


def _nearer(excess: Floats, values: Floats, pool: Ints, counted: Flags) -> Floats:
    """(k, m): what `values` (k, m) in [0, 1] are on average at the counted cells of the pool whose excess is
    half of one's own at most; of waiting, the first of them, 1 where nothing tells, and of others 0."""
    known = counted & ~np.isnan(values[0])
    order = np.lexsort((excess[known], pool[known]))
    pools, near = pool[known][order], excess[known][order]
    top = float(near.max(initial=0.0)) + float(np.nan_to_num(excess).max(initial=0.0)) + 1.0
    ends = np.searchsorted(pools * top + near, pool * top + np.nan_to_num(excess) / 2, side="right")
    starts = np.searchsorted(pools, pool, side="left")
    sums = np.zeros((len(values), len(near) + 1))
    np.cumsum(values[:, known][:, order], axis=1, out=sums[:, 1:])
    count = ends - starts
    found = (sums[:, ends] - sums[:, starts]) / np.maximum(count, 1)
    found[0, count == 0] = 1.0
    clipped: Floats = np.clip(found, 0.0, 1.0)
    return clipped
