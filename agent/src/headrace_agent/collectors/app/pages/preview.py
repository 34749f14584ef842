"""What the agent would take from a page, or from two that follow one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.pages.kinds import AUTO, ENGINES
from headrace_agent.collectors.app.pages.metrics import FROM_FIRST, FROM_START, MetricsSource
from headrace_agent.collectors.app.pages.page import bare_page
from headrace_agent.collectors.exposition import PageError
from headrace_agent.settings import EngineSettings

SIGNALS: Final = ("queue_depth", "ttft_p95_s", "error_rate", "kv_fill")
# Within it the figures of a page count as fresh.
_PAGE_LASTS_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class EnginePreview:
    """`kind`: of the engine, "" where the page is none's. `signals`: catalogue name -> figure in the
    catalogue's unit, None where the page does not give it. `source`: name of each signal that it
    gives -> the family used. `warnings`: what an operator should know."""

    kind: str
    signals: Mapping[str, float | None]
    source: Mapping[str, str]
    warnings: tuple[str, ...]


def preview(
    page: bytes, later: bytes | None = None, seconds: float | None = None, kind: str = AUTO
) -> EnginePreview:
    """Read a page as the agent does.

    Of one page counters count from the engine's start; of two, what was added between them, with
    gauges from the later. `seconds` lie between the two; they are no part of any figure, for all
    are shares and quantiles. Raises PageError where a page is no metrics page.
    """
    later_at = seconds if seconds is not None and 0 < seconds <= _PAGE_LASTS_S else _PAGE_LASTS_S
    source = MetricsSource(EngineSettings(), kind, "/metrics", FROM_START if later is None else FROM_FIRST)
    warnings = _take(source, page, 0.0)
    now = 0.0
    if later is not None:
        first, resets, now = source.kind, source.resets, later_at
        warnings += _take(source, later, now)
        warnings += _compare(source, first, resets)
    found = source.signals(now)
    return EnginePreview(
        kind=source.kind,
        signals={name: found.get(name) for name in SIGNALS},
        source=source.sources(now),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _take(source: MetricsSource, page: bytes, now: float) -> list[str]:
    """Read a page; what is wrong with it."""
    bare_page(page)
    if source.take(Answer(200, page), now) is None:
        raise PageError(source.trouble)
    return [source.trouble] if source.trouble else []


def _compare(source: MetricsSource, first: str, resets: int) -> list[str]:
    """What the second page tells of the time between the two."""
    if first and source.kind != first:
        return [f"the first page is one of {ENGINES[first].title}, the later of {ENGINES[source.kind].title}"]
    if source.resets > resets:
        return [
            "counters went back between the two pages: the engine was started anew; counted from its start"
        ]
    return []
