"""An engine's page as the agent reads it. Pure."""

from __future__ import annotations

from typing import Final, get_args

from headrace_agent.collectors.app.pages.preview import preview
from headrace_agent.commands.errors import CommandError
from headrace_agent.commands.read.outcome import PageOutcome
from headrace_agent.settings import CellSettings

KINDS: Final[tuple[str, ...]] = get_args(CellSettings.model_fields["kind"].annotation)


def read_engine(
    raw: bytes, later: bytes | None = None, seconds: float | None = None, kind: str = "auto"
) -> PageOutcome:
    """What a page gives, its counters taken from the engine's start; or, of two pages, what was
    counted between them.

    Raises PageError where a page is no text of metrics, CommandError for an unknown kind.
    """
    if kind not in KINDS:
        raise CommandError(f"--kind: {kind!r} is no engine kind; choose one of {', '.join(KINDS)}")
    found = preview(raw, later, seconds, kind)
    source = {name: metric for name, metric in found.source.items() if found.signals.get(name) is not None}
    return PageOutcome(found.kind, found.signals, source, tuple(found.warnings))
