"""What each cell can do, learned while it serves: tokens for each second that its tensor pipes work.

A queue tells of luck as much as of the cell behind it. What a cell computes in a second of work tells of
the cell alone: it does not depend on how much the cell is given, so that weights which follow it do not
feed back on it. Activity of another kind goes on while a cell waits for its memory, and is not taken.

What is in force is held: a cell is taken to be as fast as its pool's middle until its own figure is
surely and notably another, and keeps the speed it was given until that is so again. Equal cells have
equal weights by that, whatever the noise.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Fleet, Pools, RowMemory
from headrace_controller.inventory.columns import NEVER
from headrace_shared.signals import INDEX

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

COMPUTE: Final = INDEX["compute_active"]

# Beats further apart than this may have an outage between them.
_LONGEST_S: Final = 3.0
_JUDGE_S: Final = 2.5
# No engine computes so much between two beats: a count that leaps so far is another one's.
_LEAP: Final = 1e7
# What a prompt finds in the cache may be counted before the prompt is: the count falls by that and comes
# back. One that has not come back after so long is another one's.
_BEHIND_S: Final = 60.0
# A block of work is long enough that its ends, where a prompt is half done, matter little.
_BLOCK_S: Final = 5.0
_BLOCK_PROMPTS: Final = 8.0
# What the means remember, in prompts.
_SLOW: Final = 400.0
_FAST: Final = 12.0
_LEAST_PROMPTS: Final = 4.0
# Squared: how much of a prompt the two ends of what was measured may be off by.
_PRIOR: Final = 0.7
# In logarithms. Nearer to what is held is no difference, and what is held is a multiple of the grain.
_STEP: Final = 0.06
_GRAIN: Final = 0.05
_CHANGE: Final = 0.12
_WIDEST: Final = 3.0
# In standard errors: to leave the pool's middle, to go on from there, to begin anew.
_SURE: Final = 2.0
_LIKELY: Final = 1.0
_ANEW: Final = 3.0

_SUMS: Final = ("work", "busy", "square", "off")


class SpeedRecord(NamedTuple):
    """What is known of one row, to outlive a controller: the logarithm of the speed in force over its
    pool's middle, and the sums behind the estimate: tokens, seconds of work, squares of what came at
    once, squares of what blocks were off."""

    level: float = 0.0
    work: float = 0.0
    busy: float = 0.0
    square: float = 0.0
    off: float = 0.0


UNKNOWN: Final = SpeedRecord()


class Speeds(NamedTuple):
    """(n,): `relative` is in force, 1 = the pool's middle; `tokens_per_s` of tensor work, and how far it
    may be off as a share of it, `error`: NaN = not known. `blind`: nothing tells of the cell's speed."""

    relative: Floats
    tokens_per_s: Floats
    error: Floats
    blind: Flags


class SpeedLearner:
    """Keeps the sums, and what is in force.

    Three sums a row: `now`, a block that is not full yet, `slow`, all blocks as far as they are
    remembered, and `fast`, the last few. Where the fast one is surely off the slow one, the cell has
    changed, and the slow one begins anew from there.
    """

    def __init__(self) -> None:
        fields = {"tokens": np.nan, "at": NEVER, "since": 0.0, "level": 0.0, "model": 0.0}
        # How long the count has been behind, and what was worked meanwhile.
        fields |= {"behind": 0.0, "owed": 0.0}
        for window in ("now", "slow", "fast"):
            fields |= {f"{window}_{name}": 0.0 for name in _SUMS}
        self._memory = RowMemory(fields)
        self._judged_at = NEVER
        self._of: tuple[Pools, int] | None = None
        self._families: Pools | None = None
        self._found = Speeds(np.ones(0), np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.bool_))

    def tick(self, fleet: Fleet, compute: Floats, ready: Flags, now: float) -> Speeds:
        """Take in what was told since the last tick. `compute` (n,) is the activity of the GPU, NaN =
        absent or stale; pools' middles are those of `ready` rows."""
        self._memory.follow(fleet)
        self._take(fleet, compute)
        pools, version = fleet.pools(), fleet.rows_version
        same = self._of is not None and self._of[0] is pools and self._of[1] == version
        if not same or self._families is None:
            self._begin_other_models(pools)
            self._families = _families(pools)
        if not same or now - self._judged_at >= _JUDGE_S:
            self._close(now)
            self._judged_at, self._of = now, (pools, version)
            self._found = self._judge(self._families, ready)
        return self._found

    def record(self, fleet: Fleet, row: int) -> SpeedRecord:
        """What is known of a row."""
        self._memory.follow(fleet)
        level, *sums = (float(self._memory[name][row]) for name in ("level", *_named("slow")))
        return SpeedRecord(level, *sums)

    def restore(self, fleet: Fleet, row: int, record: SpeedRecord) -> None:
        """Go on from a record of the row's cell."""
        self._memory.follow(fleet)
        for name, value in zip(("level", *_named("slow")), record, strict=True):
            self._memory[name][row] = value
        self._of = None

    def _take(self, fleet: Fleet, compute: Floats) -> None:
        """Add what was done, and the time that it took, between each row's last two beats."""
        memory, n = self._memory, fleet.size
        told_at, before = fleet.telemetry_at[:n], memory["at"]
        new = told_at != before
        if not new.any():
            return
        unknown = fleet.engine_stale[:n] | np.isnan(compute)
        tokens = np.where(unknown, np.nan, fleet.work_tokens[:n])
        seconds = np.subtract(told_at, before, out=np.full(n, np.inf), where=new)
        grown = tokens - memory["tokens"]
        near = (seconds > 0) & (seconds <= _LONGEST_S)
        worked = np.where(near, compute, 0.0) * np.where(near, seconds, 0.0)
        good = near & (grown >= 0) & (grown <= _LEAP)
        fell = near & (grown < 0) & (memory["behind"] + seconds <= _BEHIND_S)
        done = np.where(good, grown, 0.0)
        busy = np.where(good, worked + memory["owed"], 0.0)
        for name, new_part in (("work", done), ("busy", busy), ("square", done * done)):
            memory[f"now_{name}"][:] += new_part
        memory["owed"][new] = np.where(fell, memory["owed"] + worked, 0.0)[new]
        memory["behind"][new] = np.where(fell, memory["behind"] + seconds, 0.0)[new]
        memory["tokens"][new] = np.where(fell, memory["tokens"], tokens)[new]
        memory["at"][new] = told_at[new]

    def _begin_other_models(self, pools: Pools) -> None:
        """Forget what cells did with a model that they serve no more. A cell goes by the one of its models
        that has been known longest, for adapters are loaded beside it."""
        memory = self._memory
        was, ids = memory["model"], pools.ids[pools.pool]
        model = np.full(len(was), np.inf)
        np.minimum.at(model, pools.row, ids)
        stays = pools.row[ids == was[pools.row]]
        model[stays] = was[stays]
        other = np.isfinite(model) & (was > 0) & (model != was)
        for window in ("now", "slow", "fast"):
            for name in _named(window):
                memory[name][other] = 0.0
        memory["level"][other], memory["tokens"][other] = 0.0, np.nan
        memory["model"][:] = np.where(np.isfinite(model), model, was)

    def _close(self, now: float) -> None:
        """Let full blocks enter the means."""
        memory = self._memory
        work, busy, square = (memory[f"now_{name}"] for name in _SUMS[:3])
        prompts = _prompts(work, square)
        full = (prompts >= _BLOCK_PROMPTS) & (now - memory["since"] >= _BLOCK_S)
        if not full.any():
            return
        for window, most in (("slow", _SLOW), ("fast", _FAST)):
            keep = np.exp(-prompts / most)
            all_busy = keep * memory[f"{window}_busy"] + busy
            all_work = keep * memory[f"{window}_work"] + work
            off = work - busy * np.divide(all_work, all_busy, out=np.zeros(len(work)), where=all_busy > 0)
            for name, block in zip(_named(window), (work, busy, square, off**2), strict=True):
                memory[name][full] = (keep * memory[name] + block)[full]
        memory["since"][full] = now
        for each in (work, busy, square):
            each[full] = 0.0

    def _judge(self, pools: Pools, ready: Flags) -> Speeds:
        """Work out all speeds, and move those in force that are surely others."""
        memory, level = self._memory, self._memory["level"]
        speed, error = self._estimate("slow")
        fast, fast_error = self._estimate("fast")
        changed = np.abs(_log(fast) - _log(speed)) > np.maximum(_CHANGE, _ANEW * fast_error)
        if changed.any():
            for old, new in zip(_named("slow"), _named("fast"), strict=True):
                memory[old][changed] = memory[new][changed]
            speed, error = np.where(changed, fast, speed), np.where(changed, fast_error, error)
        logs = _log(speed)
        widest = _widest(pools, ready & ~np.isnan(logs))
        aim = np.clip(logs - pools.row_medians(logs, ready), -widest, widest)
        doubt = np.where(level == 0.0, _SURE, _LIKELY) * error
        moves = np.abs(aim - level) > np.maximum(_STEP, doubt)
        level[moves] = np.rint(aim[moves] / _GRAIN) * _GRAIN
        blind = np.isnan(speed) & np.isnan(memory["tokens"]) & (level == 0.0)
        return Speeds(np.exp(level), speed, error, blind)

    def _estimate(self, window: str) -> tuple[Floats, Floats]:
        """(n,): tokens a second of work and the share that they may be off, NaN = not known, with the
        block that is not full yet."""
        now = [self._memory[name] for name in _named("now")]
        kept = [self._memory[name] for name in _named(window)]
        work, busy, square, off = (a + b for a, b in zip(kept, now, strict=True))
        known = (_prompts(work, square) >= _LEAST_PROMPTS) & (busy > 0)
        speed = np.divide(work, busy, out=np.full(len(work), np.nan), where=known)
        prompt = np.divide(square, work, out=np.full(len(work), np.nan), where=known)
        spread = np.sqrt(off + _PRIOR * prompt**2)
        return speed, np.divide(spread, work, out=np.full(len(work), np.nan), where=known)


def _families(pools: Pools) -> Pools:
    """The same with all pools that share cells as one, in which each cell stands once.

    A cell has one speed in all its pools, so it must be relative to the same middle as its equals'.
    """
    if not len(pools.row) or np.bincount(pools.row).max() == 1:
        return pools
    family = np.arange(len(pools.models))
    before = family[:0]
    while not np.array_equal(before, family):
        before = family.copy()
        least = np.full(int(pools.row.max()) + 1, len(family))
        np.minimum.at(least, pools.row, family[pools.pool])
        np.minimum.at(family, pools.pool, least[pools.row])
        family = family[family]
    row, first = np.unique(pools.row, return_index=True)
    return Pools(pools.models, pools.ids, family[pools.pool[first]], row)


def _widest(pools: Pools, known: Flags) -> Floats:
    """(n,): how far from the middle a speed is believed. The middle of two lies between them, and neither is
    to have more of the other than it would have of many, whatever its agent says."""
    count = np.bincount(pools.pool, weights=known[pools.row], minlength=len(pools.models))
    widest = np.full(len(known), _WIDEST)
    widest[pools.row[count[pools.pool] == 2]] /= 2
    return widest


def _named(window: str) -> list[str]:
    return [f"{window}_{name}" for name in _SUMS]


def _prompts(work: Floats, square: Floats) -> Floats:
    """How many prompts of one size would come as unevenly: an engine counts a prompt when it is done."""
    count: Floats = np.divide(work * work, square, out=np.zeros(len(work)), where=square > 0)
    return count


def _log(speed: Floats) -> Floats:
    """Of what is known; NaN stays NaN."""
    logs: Floats = np.log(speed, out=np.full(len(speed), np.nan), where=speed > 0)
    return logs
