"""Which of a page's series give which figure, by the table of its engine.

Series stay the same from page to page, so this is worked out once for all pages of the same lines;
what a page adds are values.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace_agent.collectors.app.pages.mapping import (
    WORK,
    Combine,
    Counter,
    Engine,
    Figure,
    Gauge,
    Ratio,
    parts,
)
from headrace_agent.collectors.app.pages.page import Layout
from headrace_agent.collectors.exposition import Labels, SeriesKey

# Beyond it a float no longer counts one by one: no engine has come this far.
MAX_COUNT: Final = 2.0**53

ClassKey = tuple[str, SeriesKey]


def is_count(value: float) -> bool:
    """Whether a value can be a count of something: finite, not negative, and exact."""
    return 0 <= value <= MAX_COUNT


@dataclass(frozen=True, slots=True)
class Fold:
    """The values at `places`, folded into one. Of those whose `groups` are the same, which repeat one
    figure, the largest counts; without groups each stands for itself."""

    name: str
    combine: Combine
    places: tuple[int, ...]
    groups: tuple[SeriesKey, ...] = ()


@dataclass(frozen=True, slots=True)
class BucketSeries:
    """One series of a histogram: its upper bounds, and where the counts of these stand."""

    series: SeriesKey
    bounds: tuple[float, ...]
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CountedSeries:
    """One series that is counted: `key` is its class and itself, None where it is of no class."""

    name: str
    place: int
    key: ClassKey | None


@dataclass(slots=True)
class Plan:
    """How to read a page. A figure is None where the page does not have it.

    `work`: in the order of WORK. `sources`, `missing`: as in Figures. `empty`: families that are
    there and have no series.
    `unbounded`: a histogram with a series whose bound is none.
    """

    queue_depth: tuple[Fold, ...] | None = None
    running: tuple[Fold, ...] | None = None
    kv_fill: tuple[Fold, ...] | None = None
    sleep: tuple[Fold, ...] | None = None
    started_at: tuple[Fold, ...] | None = None
    work: tuple[tuple[Fold, ...] | None, ...] = ()
    ttft: tuple[BucketSeries, ...] | None = None
    unbounded: bool = False
    responses: tuple[CountedSeries, ...] | None = None
    finished: tuple[CountedSeries, ...] | None = None
    tells: frozenset[str] = frozenset()
    progress: tuple[int, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)


def plan_of(engine: Engine, layout: Layout) -> Plan:
    """The plan for pages of a layout, from the layout's memory where it was made before."""
    known = layout.memo.get(engine.kind)
    if not isinstance(known, Plan):
        known = layout.memo[engine.kind] = _Planner(engine, layout).plan
    return known


class _Planner:
    """Makes the plan for one layout."""

    def __init__(self, engine: Engine, layout: Layout) -> None:
        self.plan = Plan()
        self._engine = engine
        self._families = layout.families
        self._places: dict[str, list[tuple[int, Labels]]] = defaultdict(list)
        for place, (name, labels) in enumerate(layout.series):
            self._places[name].append((place, labels))
        plan = self.plan
        plan.queue_depth = self._figure("queue_depth", engine.queue_depth)
        plan.running = self._figure("running", engine.running)
        plan.kv_fill = self._figure("kv_fill", engine.kv_fill)
        plan.work = tuple(self._figure(name, getattr(engine, name)) for name in WORK)
        self._plan_ttft()
        plan.finished, _ = self._counts("finished", engine.finished)
        plan.responses, plan.tells = self._counts("responses", engine.responses)
        plan.sleep = self._figure("sleep", engine.sleep)
        plan.started_at = self._figure("started_at", engine.started_at)
        plan.progress = tuple(place for name in engine.progress for place, _ in self._places[name])

    def _lacks(self, figure: str, name: str) -> None:
        if self._is_due(figure):
            self.plan.missing.append(name)

    def _is_due(self, figure: str) -> bool:
        return figure not in self._engine.optional and figure not in WORK

    def _figure(self, figure: str, versions: Figure) -> tuple[Fold, ...] | None:
        """One fold, or two where the second divides the first, by the newest version that is there."""
        for each in versions:
            if all(self._has(gauge) for gauge in parts(each)):
                return self._folds(figure, each)
        if versions:
            self._lacks(figure, str(versions[0]))
        return None

    def _folds(self, figure: str, version: Gauge | Ratio) -> tuple[Fold, ...]:
        folds = tuple(self._fold(gauge) for gauge in parts(version))
        self.plan.sources[figure] = folds[0].name
        if self._is_due(figure) and not folds[0].places:
            self.plan.empty.append(str(version))
        return folds

    def _has(self, gauge: Gauge) -> bool:
        """Whether the family is there; of one that holds several figures, whether this one is."""
        return bool(self._series(gauge)) if gauge.where else gauge.name in self._families

    def _series(self, gauge: Gauge) -> list[tuple[int, Labels]]:
        wanted = gauge.where.items()
        return [(place, labels) for place, labels in self._places[gauge.name] if wanted <= labels.items()]

    def _fold(self, gauge: Gauge) -> Fold:
        series = self._series(gauge)
        places = tuple(place for place, _ in series)
        if not gauge.copies:
            return Fold(gauge.name, gauge.combine, places)
        groups = tuple(
            tuple(item for item in labels.key() if item[0] not in gauge.copies) for _, labels in series
        )
        return Fold(gauge.name, gauge.combine, places, groups)

    def _plan_ttft(self) -> None:
        versions = self._engine.ttft
        name = next((name for name in versions if name in self._families), None)
        if name is None:
            if versions:
                self._lacks("ttft_p95_s", versions[0])
            return
        self.plan.sources["ttft_p95_s"] = name
        series: dict[SeriesKey, dict[float, int]] = {}
        for place, labels in self._places[f"{name}_bucket"]:
            le = _bound(labels.get("le", ""))
            if is_count(le) or le == math.inf:
                series.setdefault(labels.key(without="le"), {})[le] = place
            else:
                self.plan.unbounded = True
        self.plan.ttft = tuple(
            BucketSeries(key, tuple(places), tuple(places.values())) for key, places in series.items()
        )
        if not self._places[f"{name}_bucket"]:
            self.plan.empty.append(name)

    def _counts(
        self, figure: str, counters: Sequence[Counter]
    ) -> tuple[tuple[CountedSeries, ...] | None, frozenset[str]]:
        """Requests by class, and the classes that can be told; None where a counter is missing."""
        missing = [c.name for c in counters if not c.sparse and c.name not in self._families]
        for name in missing:
            self._lacks(figure, name)
        if missing or not counters:
            return None, frozenset()
        found: list[CountedSeries] = []
        tells: frozenset[str] = frozenset()
        for counter in counters:
            series = self._counted(counter)
            found += [
                CountedSeries(counter.name, place, _class_key(counter, labels)) for place, labels in series
            ]
            exact = any(counter.exact(labels) for _, labels in series)
            tells |= counter.tells | (counter.told_exactly if exact else frozenset())
        if figure == "responses":
            self.plan.sources["error_rate"] = " + ".join(counter.name for counter in counters)
        return tuple(found), tells

    def _counted(self, counter: Counter) -> list[tuple[int, Labels]]:
        series = self._places[counter.name]
        choose, label = self._engine.only, self._engine.only_label
        if choose is None or not series:
            return series
        chosen = choose(frozenset(labels.get(label, "") for _, labels in series))
        return [(place, labels) for place, labels in series if labels.get(label, "") in chosen]


def _class_key(counter: Counter, labels: Labels) -> ClassKey | None:
    kind = counter.classify(labels)
    return None if kind is None else (kind, labels.key())


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
