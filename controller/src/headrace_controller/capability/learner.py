"""Keeps what is learned of sizes: a boundary for each class, and the mix of each pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace_controller.capability.boundary import Boundary, judge
from headrace_controller.capability.guide import Guide
from headrace_controller.capability.sizes import EDGES, Counts, SizeCounts, no_counts
from headrace_controller.settings import CapabilitySettings

LEARN_INTERVAL_S: Final = 1.0
GUIDE_INTERVAL_S: Final = 5.0
"""Each change of the guide changes routes or weights at all gateways."""

MIX_SECONDS: Final = 30.0
MIX_CHANGE: Final = 0.1
_MIX_SAMPLES: Final = 20.0
# What a request costs beside its prompt, in bytes of prompt: its answer.
_REQUEST_BYTES: Final = 1024.0
_COST: Final = EDGES + _REQUEST_BYTES


@dataclass(frozen=True, slots=True)
class BoundaryRecord:
    """What is kept of one boundary over a restart."""

    model: str
    max_model_len: int
    bytes_per_token: float


class Learner:
    """Takes in counts of sizes and gives the guide; a new object whenever it changed.

    Pure but for what it keeps. `kept` are the boundaries of a controller before this one.
    """

    def __init__(self, settings: CapabilitySettings, kept: Iterable[BoundaryRecord] = ()) -> None:
        self._settings = settings
        self._boundaries = {
            (each.model, each.max_model_len): Boundary(
                min(max(each.bytes_per_token, settings.least_bytes_per_token), settings.most_bytes_per_token),
                reason="kept from before the restart",
            )
            for each in kept
        }
        self._known: dict[tuple[str, int], Counts] = {}
        self._window: dict[tuple[str, int], Counts] = {}
        self._load: dict[str, dict[int, float]] = {}
        self._missing: dict[tuple[str, int], float] = {}
        self._learned_at = self._guided_at = self._pruned_at = float("-inf")
        self.guide = Guide(settings, dict(self._boundaries))

    def learn(self, counts: SizeCounts, classes: Mapping[str, Sequence[int]], now: float) -> bool:
        """Take in the counts as they stand now; True when the guide is a new one.

        `classes[model]` are the lengths of its classes; models of one class are left out.
        """
        if now - self._learned_at < LEARN_INTERVAL_S:
            return False
        elapsed = now - self._learned_at
        self._learned_at = now
        fresh = self._fresh(counts)
        for model, lengths in classes.items():
            if self._settings.learn:
                self._move(model, lengths, now)
            self._note_load(model, lengths, fresh, elapsed)
        return self._renew(classes, now)

    def prune(
        self, classes: Mapping[str, Sequence[int]], now: float, retention_s: float
    ) -> Sequence[tuple[str, int]]:
        """Forget the boundaries of classes that have not been there for `retention_s`, and return their
        models and lengths; the guide is a new one where there are any. `classes` as for `learn`."""
        if now - self._pruned_at < LEARN_INTERVAL_S:
            return ()
        self._pruned_at = now
        self._load = {model: load for model, load in self._load.items() if model in classes}
        self._missing = {
            (model, length): self._missing.get((model, length), now)
            for model, length in self._boundaries
            if length not in classes.get(model, ())
        }
        gone = [key for key, since in self._missing.items() if now - since >= retention_s]
        for key in gone:
            del self._boundaries[key], self._missing[key]
        if gone:
            self.guide = Guide(self._settings, dict(self._boundaries), self.guide.mix)
        return gone

    def records(self) -> tuple[BoundaryRecord, ...]:
        """The boundaries that were learned."""
        return tuple(
            BoundaryRecord(model, length, each.bytes_per_token)
            for (model, length), each in sorted(self._boundaries.items())
        )

    def _fresh(self, counts: SizeCounts) -> dict[tuple[str, int], Counts]:
        """What is new since the last look; it also goes into the window of its boundary."""
        fresh = {}
        for key, now in counts.items():
            before = self._known.get(key)
            # Counts that fall are those of a new start.
            new = now - before if before is not None and (now >= before).all() else now
            self._known[key] = now.copy()
            if new.any():
                fresh[key] = new
                self._window[key] = self._window.get(key, 0.0) + new
        for key in self._known.keys() - counts.keys():
            del self._known[key]
            self._window.pop(key, None)
        return fresh

    def _move(self, model: str, lengths: Sequence[int], now: float) -> None:
        """Judge the boundary of each class but the last, which takes everything."""
        for number, length in enumerate(lengths[:-1]):
            end = lengths[number + 1]
            own = self._seen(model, length, end)
            larger = self._seen(model, end, None)
            before = self._boundaries.get((model, length)) or Boundary(self._settings.bytes_per_token)
            after = judge(before, length, own, larger, self._settings, now)
            if after is not before:
                self._boundaries[model, length] = after
                self._forget(model, length)

    def _seen(self, model: str, first: int, end: int | None) -> Counts:
        """The window's counts of the cells of [`first`, `end`) tokens."""
        total = no_counts()
        for (of, length), counts in self._window.items():
            if of == model and length >= first and (end is None or length < end):
                total = total + counts
        return total

    def _forget(self, model: str, first: int) -> None:
        """A boundary that has moved is judged by what comes after; so is what it is compared with."""
        for key in [key for key in self._window if key[0] == model and key[1] >= first]:
            del self._window[key]

    def _note_load(
        self,
        model: str,
        lengths: Sequence[int],
        fresh: Mapping[tuple[str, int], Counts],
        elapsed: float,
    ) -> None:
        """Add the new requests' cost to their classes' loads, which fade over MIX_SECONDS."""
        load = self._load.setdefault(model, {})
        fade = float(np.exp(-elapsed / MIX_SECONDS)) if np.isfinite(elapsed) else 0.0
        for length in list(load):
            load[length] *= fade
            if length not in lengths:
                del load[length]
        new = [counts.sum(axis=1) for (of, _), counts in fresh.items() if of == model]
        if not new:
            return
        total = np.sum(new, axis=0)
        guide = self.guide
        ends = [guide.bounds(model, length)[0].bytes_below for length in lengths[:-1]]
        number = np.searchsorted(np.array(ends, dtype=np.float64), EDGES, side="right")
        for at, length in enumerate(lengths):
            mine = number == at
            load[length] = load.get(length, 0.0) + float((total[mine] * _COST[mine]).sum())

    def _renew(self, classes: Mapping[str, Sequence[int]], now: float) -> bool:
        told = self.guide.mix
        mix = {
            model: found
            for model, lengths in classes.items()
            if (found := self._mix(model, lengths) or told.get(model))
        }
        moved = self._boundaries != dict(self.guide.boundaries)
        if not moved and not _differ(mix, self.guide.mix):
            return False
        if now - self._guided_at < GUIDE_INTERVAL_S:
            return False
        self._guided_at = now
        self.guide = Guide(self._settings, dict(self._boundaries), mix)
        return True

    def _mix(self, model: str, lengths: Sequence[int]) -> dict[int, float] | None:
        load = self._load.get(model, {})
        total = sum(load.values())
        if total < _MIX_SAMPLES * _REQUEST_BYTES:
            return None
        return {length: load.get(length, 0.0) / total for length in lengths}


def _differ(mix: Mapping[str, Mapping[int, float]], told: Mapping[str, Mapping[int, float]]) -> bool:
    """Whether a mix is so far from the one told that weights would move by it. One that is only not
    known any more (no requests) stays told: nothing would move by it."""
    for model, shares in mix.items():
        before = told.get(model)
        if before is None or before.keys() != shares.keys():
            return True
        if any(abs(shares[length] - before[length]) > MIX_CHANGE for length in shares):
            return True
    return False
