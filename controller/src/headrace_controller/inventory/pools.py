"""Pools as arrays: which cells serve which model, and medians over them without a loop."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Pools:
    """m memberships: cell `row[k]` serves model `models[pool[k]]`; sorted by pool, then cell id.

    `ids[p]` is a number that pool p keeps for as long as it is known. A change of memberships makes
    new Pools.
    """

    models: tuple[str, ...]
    ids: Ints
    pool: Ints
    row: Ints

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Model id → pool number."""
        return {model: number for number, model in enumerate(self.models)}

    def best(self, values: Floats, members: Flags) -> Floats:
        """(m,) → (p,): the greatest value among the marked members of each pool; −inf where none."""
        best = np.full(len(self.models), -np.inf)
        np.maximum.at(best, self.pool[members], values[members])
        return best

    def medians(self, values: Floats, members: Flags) -> Floats:
        """(m,) → (p,): the median of the marked members' values that are not NaN; NaN where none."""
        ordered, start, count = self._ordered(values, members)
        medians = np.full(len(self.models), np.nan)
        some = count > 0
        first, n = start[some], count[some]
        medians[some] = (ordered[first + (n - 1) // 2] + ordered[first + n // 2]) / 2
        return medians

    def row_medians(self, values: Floats, members: Flags) -> Floats:
        """(n,) values and marks by row → (n,): the median of the marked rows of a row's pools,
        averaged over its pools; NaN where they have none."""
        medians = self.medians(values[self.row], members[self.row])[self.pool]
        known = ~np.isnan(medians)
        count = np.bincount(self.row[known], minlength=len(values))
        total = np.bincount(self.row[known], weights=medians[known], minlength=len(values))
        averaged: Floats = np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)
        return averaged

    def medians_of_others(self, values: Floats, members: Flags) -> Floats:
        """(m,) → (m,): for each membership, the median over the *other* marked members of its pool.

        NaN values count nowhere; NaN where a membership has no other member with a value.
        """
        ordered, start, count = self._ordered(values, members)
        counted = members & ~np.isnan(values)
        rank = self._ranks(values, counted, start)
        others = count[self.pool] - counted
        low = _other(ordered, start[self.pool], rank, (others - 1) // 2)
        high = _other(ordered, start[self.pool], rank, others // 2)
        medians: Floats = np.where(others > 0, (low + high) / 2, np.nan)
        return medians

    def _ordered(self, values: Floats, members: Flags) -> tuple[Floats, Ints, Ints]:
        """The counted values sorted within their pools; each pool's start and count."""
        counted = members & ~np.isnan(values)
        pool, value = self.pool[counted], values[counted]
        count = np.bincount(pool, minlength=len(self.models)).astype(np.int64)
        start = np.concatenate(([0], np.cumsum(count)[:-1])).astype(np.int64) if len(count) else count
        return value[np.lexsort((value, pool))], start, count

    def _ranks(self, values: Floats, counted: Flags, start: Ints) -> Ints:
        """Where each counted membership stands within its pool's sorted values; a large number
        where it is not counted, so that nothing is left out for it."""
        rank = np.full(len(values), np.iinfo(np.int64).max, dtype=np.int64)
        where = np.flatnonzero(counted)
        order = np.lexsort((values[where], self.pool[where]))
        rank[where[order]] = np.arange(len(where)) - start[self.pool[where[order]]]
        return rank


def _other(ordered: Floats, start: Ints, rank: Ints, position: Ints) -> Floats:
    """The value at `position` of each pool's sorted values with the one at `rank` left out."""
    if not len(ordered):
        return np.full(len(start), np.nan)
    at = start + position + (position >= rank)
    found: Floats = ordered[np.clip(at, 0, len(ordered) - 1)]
    return found


class Memberships:
    """Who serves which model, kept in the order of `Pools`: a cell that comes or goes costs one place in
    the lists of its models, and the other pools nothing."""

    def __init__(self) -> None:
        self._ids: dict[str, list[str]] = {}
        self._rows: dict[str, array[int]] = {}

    def add(self, cell_id: str, row: int, models: Iterable[str]) -> None:
        """A cell serves these models, which it did not before."""
        for model in models:
            ids = self._ids.setdefault(model, [])
            at = bisect_left(ids, cell_id)
            ids.insert(at, cell_id)
            self._rows.setdefault(model, array("q")).insert(at, row)

    def remove(self, cell_id: str, models: Iterable[str]) -> None:
        """A cell serves these models no more."""
        for model in models:
            ids = self._ids[model]
            at = bisect_left(ids, cell_id)
            del ids[at], self._rows[model][at]
            if not ids:
                del self._ids[model], self._rows[model]

    def pools(self, seen: Mapping[str, int]) -> Pools:
        """Pools over every model `seen` (model id → stable number), also those without a member."""
        models = tuple(sorted(seen))
        counts = [len(self._ids.get(model, ())) for model in models]
        rows = [np.array(self._rows[model], dtype=np.int64) for model in models if model in self._rows]
        return Pools(
            models=models,
            ids=np.array([seen[model] for model in models], dtype=np.int64),
            pool=np.repeat(np.arange(len(models)), counts),
            row=np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64),
        )


def build_pools(seen: Mapping[str, int], cells: Iterable[tuple[str, int, tuple[str, ...]]]) -> Pools:
    """Pools over every model `seen` (model id → stable number); `cells` are (cell id, row, models)."""
    memberships = Memberships()
    for cell_id, row, models in cells:
        memberships.add(cell_id, row, models)
    return memberships.pools(seen)


class ModelNames:
    """The models that cells name, and since when none names them. `ids`: model id → a number that it
    keeps for as long as it is known."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self._named_by: dict[str, int] = {}
        self._unnamed_since: dict[str, float] = {}
        self._next_id = 1

    def name(self, models: Iterable[str]) -> None:
        """One cell more names these models."""
        for model in models:
            if model not in self.ids:
                self.ids[model] = self._next_id
                self._next_id += 1
            self._named_by[model] = self._named_by.get(model, 0) + 1
            self._unnamed_since.pop(model, None)

    def unname(self, models: Iterable[str], now: float) -> None:
        """One cell names these models no more; `now` is when it did last."""
        for model in models:
            self._named_by[model] -= 1
            if not self._named_by[model]:
                del self._named_by[model]
                self._unnamed_since[model] = now

    def forget(self, now: float, retention_s: float) -> bool:
        """Forget the models that no cell has named for the retention; True where there were any."""
        gone = [model for model, at in self._unnamed_since.items() if now - at >= retention_s]
        for model in gone:
            del self._unnamed_since[model], self.ids[model]
        return bool(gone)
