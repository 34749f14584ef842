"""From a page to figures, by the mapping table of its engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace_agent.collectors.app.pages.mapping import OK, Engine
from headrace_agent.collectors.app.pages.page import Page
from headrace_agent.collectors.app.pages.plan import MAX_COUNT, CountedSeries, Fold, Plan, is_count, plan_of
from headrace_agent.collectors.exposition import SeriesKey
from headrace_agent.collectors.readings import Work

# A little above 1 is rounding, much above it is another unit and no figure.
_FULL: Final = 1.01

ByClass = Mapping[tuple[str, SeriesKey], float]
Buckets = Mapping[SeriesKey, Mapping[float, float]]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one page says. None and missing keys: the page does not say it.

    `kind`: of the engine whose page it is, "" for none's. `ttft`: series -> upper bound `le` in
    seconds -> cumulative count. `responses` and `finished`: (class, series) -> count; None where
    the page does not count them. `tells`: the classes that can be told from `responses`.
    `progress`: what moves while the engine works; `work`: the tokens that it worked off.
    `started_at`: seconds since the epoch.
    `sources`: catalogue name -> the family that it is read from. `missing`: families that every
    version should have, by their newest name, and those that stay empty though the engine works.
    `problems`: values that cannot be and were left out, in words that do not vary from page to
    page. `cut`: the page ends in the middle of a line.
    """

    kind: str = ""
    queue_depth: float | None = None
    running: float | None = None
    kv_fill: float | None = None
    ttft: Buckets | None = None
    responses: ByClass | None = None
    finished: ByClass | None = None
    tells: frozenset[str] = frozenset()
    progress: tuple[float, ...] = ()
    work: Work | None = None
    awake: bool | None = None
    started_at: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    cut: bool = False

    @property
    def in_flight(self) -> int | None:
        """Requests running and waiting; None where either is unknown."""
        if self.running is None or self.queue_depth is None:
            return None
        count = self.running + self.queue_depth
        return round(count) if is_count(count) else None

    @property
    def has_served(self) -> bool | None:
        """Whether requests were answered; None where the page does not tell."""
        return has_served(self.responses, self.finished, self.progress, self.cut)


def has_served(
    responses: ByClass | None, finished: ByClass | None, progress: Sequence[float], cut: bool
) -> bool | None:
    """Whether requests were answered; None where a page with these figures does not tell."""
    counts = [*(responses or {}).items(), *(finished or {}).items()]
    if any(kind == OK and value > 0 for (kind, _), value in counts):
        return True
    # Work that was done, where nobody counts the requests that asked for it.
    if not counts and any(progress):
        return True
    told = responses is not None or finished is not None or progress
    return False if told and not cut else None


def read(engine: Engine, page: Page) -> Figures:
    """Map a page of `engine`'s to figures."""
    plan = plan_of(engine, page.layout)
    return _Reading(plan, page.values).figures(engine.kind, page.cut)


class _Reading:
    """The values of one page on their way to figures, and what could not be taken from them."""

    def __init__(self, plan: Plan, values: Sequence[float]) -> None:
        self._plan = plan
        self._values = values
        self._problems: list[str] = []

    def figures(self, kind: str, cut: bool) -> Figures:
        plan, values = self._plan, self._values
        queue_depth, running = self._figure(plan.queue_depth), self._figure(plan.running)
        kv_fill, ttft = self._fraction("kv_fill", plan.kv_fill), self._ttft()
        finished, responses = self._count(plan.finished), self._count(plan.responses)
        awake, started_at = self._figure(plan.sleep), self._figure(plan.started_at)
        progress = tuple([values[place] for place in plan.progress])
        missing = plan.missing
        if plan.empty and has_served(responses, finished, progress, cut):
            missing = [*missing, *plan.empty]
        return Figures(
            kind=kind,
            queue_depth=queue_depth,
            running=running,
            kv_fill=kv_fill,
            ttft=ttft,
            responses=responses,
            finished=finished,
            tells=plan.tells,
            progress=progress,
            work=self._work(),
            awake=None if awake is None else awake != 0,
            started_at=started_at,
            sources=plan.sources,
            missing=tuple(dict.fromkeys(missing)),
            problems=tuple(dict.fromkeys(self._problems)),
            cut=cut,
        )

    def _leave_out(self, name: str) -> None:
        self._problems.append(f"{name} has values that cannot be; they were left out")

    def _figure(self, folds: tuple[Fold, ...] | None) -> float | None:
        if folds is None:
            return None
        folded = [self._fold(each) for each in folds]
        if len(folded) == 1:
            return folded[0]
        part, whole = folded
        return part / whole if part is not None and whole else None

    def _work(self) -> Work | None:
        """What was worked off since the engine's start; None where the page does not count it."""
        prompt, cached, generated = (self._figure(each) for each in self._plan.work)
        if prompt is None or generated is None:
            return None
        return Work(int(prompt), int(cached or 0), int(generated))

    def _fold(self, fold: Fold) -> float | None:
        values = [self._values[place] for place in fold.places]
        good = [value for value in values if 0 <= value <= MAX_COUNT]
        if len(good) < len(values):
            self._leave_out(fold.name)
        if not good:
            return None
        value = float(fold.combine(_without_copies(values, fold.groups) if fold.groups else good))
        if is_count(value):
            return value
        self._leave_out(fold.name)
        return None

    def _fraction(self, figure: str, folds: tuple[Fold, ...] | None) -> float | None:
        value = self._figure(folds)
        if value is not None and not value <= _FULL:
            self._leave_out(self._plan.sources[figure])
            return None
        return None if value is None else min(value, 1.0)

    def _ttft(self) -> Buckets | None:
        """Buckets by series; a series without its +Inf bucket was cut off and is left out."""
        plan = self._plan
        if plan.ttft is None:
            return None
        found: dict[SeriesKey, Mapping[float, float]] = {}
        spoiled = plan.unbounded
        for each in plan.ttft:
            values = [self._values[place] for place in each.places]
            pairs = zip(each.bounds, values, strict=True)
            # Of numbers below zero or beyond counting, and of NaN, the one or the other tells.
            if min(values) >= 0 and sum(values) <= MAX_COUNT:
                good = dict(pairs)
            else:
                good = {le: value for le, value in pairs if 0 <= value <= MAX_COUNT}
            spoiled = spoiled or len(good) < len(values)
            if math.inf in good:
                found[each.series] = good
        if spoiled:
            self._leave_out(plan.sources["ttft_p95_s"])
        return found

    def _count(self, counts: tuple[CountedSeries, ...] | None) -> ByClass | None:
        if counts is None:
            return None
        found: dict[tuple[str, SeriesKey], float] = {}
        for each in counts:
            value = self._values[each.place]
            if not 0 <= value <= MAX_COUNT:
                self._leave_out(each.name)
            elif each.key is not None:
                found[each.key] = value
        return found


def _without_copies(values: Sequence[float], groups: Sequence[SeriesKey]) -> list[float]:
    """Of the values that can be and whose group is the same, the largest only."""
    largest: dict[SeriesKey, float] = {}
    for value, group in zip(values, groups, strict=True):
        if is_count(value):
            largest[group] = max(value, largest.get(group, 0.0))
    return list(largest.values())
