"""Pages of one kind, read by its table."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_agent.collectors.app.pages.figures import Figures, read
from headrace_agent.collectors.app.pages.kinds import ENGINES
from headrace_agent.collectors.app.pages.page import PageReader
from tests.unit.agent.collectors.app.engine_pages import capture


def figures_of(kind: str, page: bytes | str) -> Figures:
    """What the page says; a page is named by its file, or given as bytes."""
    raw = capture(page) if isinstance(page, str) else page
    return read(ENGINES[kind], PageReader(ENGINES[kind].wanted).read(raw))


def by_class(counts: Mapping[tuple[str, object], float] | None) -> dict[str, float]:
    """Requests by class, over all series."""
    sums: dict[str, float] = {}
    for (name, _), value in (counts or {}).items():
        sums[name] = sums.get(name, 0) + value
    return sums
