"""Structured logs: events with key-values, few per unit of work."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from headrace_shared.config import Settings

Format = Literal["auto", "console", "json"]
Level = Literal["debug", "info", "warning", "error"]


class LogSettings(Settings):
    """Level and form of a program's log on stderr; `auto` is for people on a terminal, else JSON."""

    level: Level = "info"
    format: Format = "auto"


def configure(level: Level = "info", fmt: Format = "auto", stream: TextIO | None = None) -> None:
    """Set up logging for a program at its start, or anew while it runs.

    `auto` writes for people on a terminal and JSON lines elsewhere. Logs go to stderr, so that
    stdout stays free for what a command prints. Loggers that exist keep their stream and take the
    new level and form.
    """
    out = stream if stream is not None else sys.stderr
    people = fmt == "console" or (fmt == "auto" and out.isatty())
    renderer: Processor = structlog.dev.ConsoleRenderer() if people else structlog.processors.JSONRenderer()
    # Every logger holds this list: what is changed in place reaches those that exist.
    _processors[:] = [
        _Threshold(level),
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        renderer,
    ]
    structlog.configure(
        processors=_processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )


class _Threshold:
    """Drops what is below a level."""

    def __init__(self, level: Level) -> None:
        self._least = logging.getLevelNamesMapping()[level.upper()]

    def __call__(self, logger: Any, method: str, event: EventDict) -> EventDict:
        if structlog.processors.NAME_TO_LEVEL[method] < self._least:
            raise structlog.DropEvent
        return event


_processors: list[Processor] = []


def get(component: str) -> FilteringBoundLogger:
    """The logger of one component; its name stands in every line it writes."""
    return cast(FilteringBoundLogger, structlog.get_logger(component=component))
