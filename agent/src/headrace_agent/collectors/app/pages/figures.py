"""From a page to figures, by the mapping table of its engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from headrace_agent.collectors.app.pages.mapping import OK, Counter, Engine, Figure, Gauge, Ratio, parts
from headrace_agent.collectors.app.pages.page import Page
from headrace_agent.collectors.exposition import Sample, SeriesKey

# Beyond it a float no longer counts one by one: no engine has come this far.
MAX_COUNT: Final = 2.0**53
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
    `progress`: what moves while the engine works. `started_at`: seconds since the epoch.
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
        counts = [*(self.responses or {}).items(), *(self.finished or {}).items()]
        if any(kind == OK and value > 0 for (kind, _), value in counts):
            return True
        # Work that was done, where nobody counts the requests that asked for it.
        if not counts and any(self.progress):
            return True
        told = self.responses is not None or self.finished is not None or self.progress
        return False if told and not self.cut else None


def is_count(value: float) -> bool:
    """Whether a value can be a count of something: finite, not negative, and exact."""
    return 0 <= value <= MAX_COUNT


def read(engine: Engine, page: Page) -> Figures:
    """Map a page of `engine`'s to figures."""
    return _Reading(engine, page).figures()


class _Reading:
    """One page on its way to figures, and what could not be taken from it."""

    def __init__(self, engine: Engine, page: Page) -> None:
        self._engine = engine
        self._families = page.families
        self._cut = page.cut
        self._problems: list[str] = []
        self._missing: list[str] = []
        self._empty: list[str] = []
        self._sources: dict[str, str] = {}
        self._by_name: dict[str, list[Sample]] = {}
        for sample in page.samples:
            self._by_name.setdefault(sample.name, []).append(sample)

    def figures(self) -> Figures:
        engine = self._engine
        queue_depth = self._figure("queue_depth", engine.queue_depth)
        running = self._figure("running", engine.running)
        kv_fill = self._fraction("kv_fill", engine.kv_fill)
        ttft = self._ttft()
        finished, _ = self._count("finished", engine.finished)
        responses, tells = self._count("responses", engine.responses)
        awake = self._figure("sleep", engine.sleep)
        found = Figures(
            kind=engine.kind,
            queue_depth=queue_depth,
            running=running,
            kv_fill=kv_fill,
            ttft=ttft,
            responses=responses,
            finished=finished,
            tells=tells,
            progress=tuple(s.value for name in engine.progress for s in self._by_name.get(name, ())),
            awake=None if awake is None else awake != 0,
            started_at=self._figure("started_at", engine.started_at),
            sources=self._sources,
            problems=tuple(dict.fromkeys(self._problems)),
            cut=self._cut,
        )
        missing = [*self._missing, *(self._empty if self._empty and found.has_served else ())]
        return replace(found, missing=tuple(dict.fromkeys(missing))) if missing else found

    def _leave_out(self, name: str) -> None:
        self._problems.append(f"{name} has values that cannot be; they were left out")

    def _lacks(self, figure: str, name: str) -> None:
        if figure not in self._engine.optional:
            self._missing.append(name)

    def _figure(self, figure: str, versions: Figure) -> float | None:
        """A figure by the newest of its versions that the page has."""
        for each in versions:
            if all(self._has(gauge) for gauge in parts(each)):
                self._sources[figure] = parts(each)[0].name
                if figure not in self._engine.optional and not any(self._series(parts(each)[0])):
                    self._empty.append(str(each))
                return self._fold(each) if isinstance(each, Gauge) else self._divide(each)
        if versions:
            self._lacks(figure, str(versions[0]))
        return None

    def _has(self, gauge: Gauge) -> bool:
        """Whether the family is there; of one that holds several figures, whether this one is."""
        if not gauge.where:
            return gauge.name in self._families
        return any(True for _ in self._series(gauge))

    def _series(self, gauge: Gauge) -> Iterable[Sample]:
        wanted = gauge.where.items()
        return (s for s in self._by_name.get(gauge.name, ()) if wanted <= s.labels.items())

    def _fold(self, gauge: Gauge) -> float | None:
        samples = list(self._series(gauge))
        good = [sample for sample in samples if is_count(sample.value)]
        if len(good) < len(samples):
            self._leave_out(gauge.name)
        if not good:
            return None
        value = float(gauge.combine(_without_copies(good, gauge.copies)))
        if is_count(value):
            return value
        self._leave_out(gauge.name)
        return None

    def _divide(self, ratio: Ratio) -> float | None:
        part, whole = self._fold(ratio.part), self._fold(ratio.whole)
        return part / whole if part is not None and whole else None

    def _fraction(self, figure: str, versions: Figure) -> float | None:
        value = self._figure(figure, versions)
        if value is not None and not value <= _FULL:
            self._leave_out(self._sources[figure])
            return None
        return None if value is None else min(value, 1.0)

    def _ttft(self) -> Buckets | None:
        """Buckets by series; a series without its +Inf bucket was cut off and is left out."""
        versions = self._engine.ttft
        name = next((name for name in versions if name in self._families), None)
        if name is None:
            if versions:
                self._lacks("ttft_p95_s", versions[0])
            return None
        self._sources["ttft_p95_s"] = name
        samples = self._by_name.get(f"{name}_bucket", ())
        if not samples:
            self._empty.append(name)
        series: dict[SeriesKey, dict[float, float]] = {}
        for sample in samples:
            le = _bound(sample.labels.get("le", ""))
            if is_count(sample.value) and (is_count(le) or le == math.inf):
                series.setdefault(sample.labels.key(without="le"), {})[le] = sample.value
            else:
                self._leave_out(name)
        return {key: buckets for key, buckets in series.items() if math.inf in buckets}

    def _count(self, figure: str, counters: Sequence[Counter]) -> tuple[ByClass | None, frozenset[str]]:
        """Requests by class, and the classes that can be told; None where a counter is missing."""
        missing = [c.name for c in counters if not c.sparse and c.name not in self._families]
        for name in missing:
            self._lacks(figure, name)
        if missing or not counters:
            return None, frozenset()
        found: dict[tuple[str, SeriesKey], float] = {}
        tells: frozenset[str] = frozenset()
        for counter in counters:
            samples = self._counted(counter)
            found.update(self._by_class(counter, samples))
            tells |= counter.tells
            if any(counter.exact(sample.labels) for sample in samples):
                tells |= counter.told_exactly
        if figure == "responses":
            self._sources["error_rate"] = " + ".join(counter.name for counter in counters)
        return found, tells

    def _counted(self, counter: Counter) -> list[Sample]:
        samples = self._by_name.get(counter.name, [])
        choose, label = self._engine.only, self._engine.only_label
        if choose is None or not samples:
            return samples
        chosen = choose(frozenset(sample.labels.get(label, "") for sample in samples))
        return [sample for sample in samples if sample.labels.get(label, "") in chosen]

    def _by_class(
        self, counter: Counter, samples: Iterable[Sample]
    ) -> Iterable[tuple[tuple[str, SeriesKey], float]]:
        for sample in samples:
            if not is_count(sample.value):
                self._leave_out(counter.name)
            elif (kind := counter.classify(sample.labels)) is not None:
                yield (kind, sample.labels.key()), sample.value


def _without_copies(samples: Sequence[Sample], copies: tuple[str, ...]) -> list[float]:
    """The values, of series that differ in nothing but `copies` the largest only."""
    if not copies or len(samples) == 1:
        return [sample.value for sample in samples]
    largest: dict[SeriesKey, float] = {}
    for sample in samples:
        key = tuple(item for item in sample.labels.key() if item[0] not in copies)
        largest[key] = max(sample.value, largest.get(key, 0.0))
    return list(largest.values())


@lru_cache(maxsize=1024)
def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
